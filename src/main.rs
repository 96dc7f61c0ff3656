//! The binary: everything is in the library's `cli`.

use std::process::ExitCode;

/// Almost half of what an add costs the processor went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    delayd::install_crypto();
    delayd::cli::main()
}
