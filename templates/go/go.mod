module hello

go 1.19

require ganger.invalid/worker-sdk/go v0.1.0

replace ganger.invalid/worker-sdk/go => ./ganger-worker
