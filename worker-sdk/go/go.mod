module ganger.invalid/worker-sdk/go

go 1.19

require github.com/tinylib/msgp v1.1.9

require github.com/philhofer/fwd v1.1.2 // indirect
