//! The program. Its code is in `cli` of the library.

use std::process::ExitCode;

/// The system allocator took almost half of the CPU time of an add.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    delayd::install_crypto();
    delayd::cli::main()
}
