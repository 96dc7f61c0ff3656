//! The binary: everything is in the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    delayd::install_crypto();
    delayd::cli::main()
}
