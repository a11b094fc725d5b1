//! The libraries for workers, file by file: `build.rs` lists the files in `worker-sdk/`.

include!(concat!(env!("OUT_DIR"), "/libraries.rs"));
