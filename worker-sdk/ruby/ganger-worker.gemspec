# frozen_string_literal: true

require_relative "lib/ganger/version"

Gem::Specification.new do |spec|
  spec.name = "ganger-worker"
  spec.version = Ganger::VERSION
  spec.summary = "Write workers for ganger: process pools that consume RabbitMQ, Kafka or a table in SQLite"
  spec.authors = ["The authors of ganger"]
  spec.license = "Apache-2.0"
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir["lib/**/*.rb", "sig/**/*.rbs", "examples/*.rb", "README.md"]
  spec.extra_rdoc_files = ["README.md"]
  spec.metadata["rubygems_mfa_required"] = "true"
  spec.add_dependency "msgpack", "~> 1.4"
end
