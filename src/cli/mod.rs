//! The command line: one file per command.
//!
//! `serve` runs the service. `demo`, `receive`, `check`, `backup`, `fsck`, `store`, `format`,
//! `healthcheck`, `token`, `openapi`, `completions` and `man` run beside it. All other commands are
//! HTTP clients of a running service, and know none of its internals.
//!
//! # Invariants
//!
//! - stdout carries only the result of a command. Errors, notices and logs go to stderr.
//! - Exit codes: 0 done, 1 failed, 2 wrong usage (by clap), 78 wrong configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app::StartError;
use crate::model::version::VERSION_AND_COMMIT;
use crate::settings::{self, File, LogFormat, Settings};
use crate::telemetry;

mod add;
mod add_retry;
mod args;
mod audit;
mod cell;
mod changes;
mod check;
mod client;
mod completions;
mod dead;
mod demo;
mod destination;
mod due;
mod export;
mod exported;
mod follow;
mod forecast;
mod fsck;
mod get;
mod healthcheck;
mod import;
mod instances;
mod man;
mod migrate;
mod openapi;
mod output;
mod paging;
mod progress;
mod pull;
mod receive;
mod receiver;
mod retry_client;
mod schedule;
mod secret;
mod serve;
mod signals;
mod stats;
mod store;
mod systemd;
mod table;
mod tasks;
mod time;
mod token;
mod topic;
mod topic_settings;

const EXAMPLES: &str = "\
Examples:
  delayd demo                                      see tasks arrive on time, nothing else needed
  delayd serve --config config/dev.toml            run the service
  delayd receive                                   print the callbacks that arrive on port 9000
  delayd add orders --in 10s '{\"sn\":\"message.call\",\"url\":\"/cancel\"}'
  delayd stats                                     what stands where, topic by topic
  delayd completions bash                          completions for your shell

delayd-bench, a program of its own, puts load on a service.

Exit codes: 0 done, 1 failed, 2 usage, 78 bad configuration.";

/// A standalone HTTP service for delay tasks: add a task now, have it called back at its due
/// moment.
#[derive(Debug, Parser)]
#[command(name = "delayd", version = VERSION_AND_COMMIT, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten, next_help_heading = "Configuration")]
    configuration: Configuration,
    #[command(subcommand)]
    command: Command,
}

/// The options that say where the settings come from.
#[derive(Debug, clap::Args)]
struct Configuration {
    /// A TOML file with settings; may be given several times, later ones win
    #[arg(long = "config", value_name = "FILE", global = true)]
    files: Vec<PathBuf>,
    /// One setting, such as --set worker.lease=45s; wins over files and environment
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", global = true)]
    sets: Vec<String>,
}

/// The commands. Their help texts are the comments of their argument types.
#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    Receive(receive::Args),
    Check(check::Args),
    Backup(store::BackupArgs),
    Fsck(fsck::Args),
    Store(store::StoreArgs),
    Format(store::FormatArgs),
    Healthcheck(healthcheck::Args),
    Token(token::Args),
    Completions(completions::Args),
    Man(man::Args),
    Add(add::Args),
    Pull(pull::PullArgs),
    Ack(pull::AckArgs),
    Nack(pull::NackArgs),
    Extend(pull::ExtendArgs),
    Get(get::Args),
    Find(tasks::FindArgs),
    List(tasks::ListArgs),
    Search(tasks::SearchArgs),
    Cancel(changes::CancelArgs),
    Update(changes::UpdateArgs),
    CancelMany(changes::CancelManyArgs),
    UpdateMany(changes::UpdateManyArgs),
    Topic(topic::Args),
    Schedule(schedule::Args),
    Dead(dead::Args),
    Destination(destination::Args),
    Instances(instances::Args),
    Stats(stats::Args),
    Forecast(forecast::Args),
    Audit(audit::Args),
    Export(export::Args),
    Import(import::Args),
    Move(migrate::Args),
    Openapi(openapi::Args),
}

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Done = 0,
    Failed = 1,
    BadConfiguration = 78,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// The commands that take settings. Only their help lists --config and --set.
const CONFIGURED: [&str; 8] =
    ["serve", "demo", "check", "backup", "fsck", "store", "format", "healthcheck"];

/// The complete command line. Use this instead of `Cli::command`.
fn command() -> clap::Command {
    let cli = Cli::command();
    let configuration = Configuration::augment_args(clap::Command::new("configuration"));
    let hidden: Vec<_> =
        configuration.get_arguments().map(|argument| argument.clone().hide(true)).collect();
    let others = cli.get_subcommands().map(|command| command.get_name().to_owned());
    let others: Vec<_> = others.filter(|name| !CONFIGURED.contains(&name.as_str())).collect();
    // An argument of the same name replaces the inherited one.
    others.iter().fold(cli, |cli, name| cli.mut_subcommand(name, |command| command.args(&hidden)))
}

/// Parses the arguments of the process.
fn parse(
    words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<Cli, clap::Error> {
    let parsed = command().try_get_matches_from(words).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        if let Command::Update(args) = &cli.command
            && let Err(wrong) = args.id_and_content()
        {
            return Err(command().error(ErrorKind::ValueValidation, wrong));
        }
        match cli.misplaced_configuration(matches.subcommand_name().unwrap_or_default()) {
            Some(wrong) => Err(command().error(ErrorKind::ArgumentConflict, wrong)),
            None => Ok(cli),
        }
    });
    parsed.map_err(with_whole_usage)
}

/// Replaces the usage line of an error by that of the command's help. clap's own line shows options
/// that an environment variable can give as if they were required.
fn with_whole_usage(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return error };
    let usage = usage.to_string();
    let mut command = command();
    command.build();
    let mut at = &mut command;
    for word in usage.split_whitespace().skip(2) {
        if at.find_subcommand(word).is_none() {
            break;
        }
        at = at.find_subcommand_mut(word).expect("it was just found");
    }
    let usage = at.render_usage();
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    error
}

impl Cli {
    /// Refuses settings for a command that takes none: they would have no effect.
    fn misplaced_configuration(&self, name: &str) -> Option<&'static str> {
        if self.configuration.files.is_empty() && self.configuration.sets.is_empty() {
            return None;
        }
        match &self.command {
            _ if CONFIGURED.contains(&name) => None,
            Command::Receive(_)
            | Command::Token(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Openapi(_) => Some(
                "--config and --set are for the service; this command takes its options from the \
                 command line",
            ),
            _ => {
                Some("--config and --set are for the service; a client command takes --server URL")
            }
        }
    }
}

impl Configuration {
    fn load(&self) -> Result<Settings, settings::Error> {
        self.load_from(&self.read())
    }

    /// Loads the settings from the files, the options and the environment.
    fn read(&self) -> Vec<File> {
        self.files.iter().map(|path| File::read(path)).collect()
    }

    /// Like `load`, for files that have been read already.
    fn load_from(&self, files: &[File]) -> Result<Settings, settings::Error> {
        Settings::of_files(files, &self.sets, environment().into_iter())
    }

    /// Like `load_from`, without the values that are in files of their own.
    fn load_without_named_files(&self, files: &[File]) -> Result<Settings, settings::Error> {
        Settings::without_named_files(files, &self.sets, environment().into_iter())
    }
}

/// The environment variables. `vars` would panic at one that is not UTF-8; such a variable gets a
/// name that no key accepts, so the error names it.
fn environment() -> Vec<(String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// The variables of the receivers in `docs/samples`, which may be started from the same shell.
const READ_BY_SAMPLES: &str = "DELAYD_SECRETS";

/// The variables from which any command takes options.
fn option_variables() -> Vec<String> {
    fn walk(command: &clap::Command, into: &mut Vec<String>) {
        into.extend(
            command
                .get_arguments()
                .filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned())),
        );
        command.get_subcommands().for_each(|command| walk(command, into));
    }
    let mut variables = vec![READ_BY_SAMPLES.to_owned()];
    walk(&command(), &mut variables);
    variables
}

/// Runs the command that the arguments name. Only usage errors and `--help` end the process
/// directly.
pub fn main() -> ExitCode {
    let cli = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match run(cli) {
        Ok(code) => code.into(),
        Err(error) if output::is_closed(&error) => Code::Failed.into(),
        Err(error) => {
            eprintln!("delayd: {}", sentence(&error));
            code_of(&error).into()
        }
    }
}

/// One thread for each core but one. That core belongs to the store: to the writer thread of the
/// embedded file, or to a Redis on this machine. One more thread makes workers wake each other in
/// vain, and adds wait longer.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

fn run(cli: Cli) -> anyhow::Result<Code> {
    let unread = settings::check_variables(&environment(), &option_variables())?;
    let configuration = cli.configuration;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        runtime.worker_threads(workers());
    }
    let runtime = runtime.enable_all().build()?;
    let code = runtime.block_on(async {
        match cli.command {
            Command::Serve(_) => serve::run(configuration, unread).await,
            Command::Demo(args) => demo::run(args, configuration.load()?).await,
            Command::Receive(args) => receive::run(args).await,
            Command::Check(args) => check::run(&args, &configuration.load()?, unread).await,
            Command::Backup(args) => store::back_up(args, &configuration.load()?).await,
            Command::Fsck(args) => fsck::run(args, &configuration.load()?).await,
            Command::Store(args) => store::run(args, &configuration.load()?).await,
            Command::Format(args) => store::format(args, &configuration.load()?).await,
            Command::Healthcheck(args) => healthcheck::run(args, &configuration).await,
            Command::Token(args) => token::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
            Command::Add(args) => add::run(args).await,
            Command::Pull(args) => pull::pull(args).await,
            Command::Ack(args) => pull::ack(args).await,
            Command::Nack(args) => pull::nack(args).await,
            Command::Extend(args) => pull::extend(args).await,
            Command::Get(args) => get::run(args).await,
            Command::Find(args) => tasks::find(args).await,
            Command::List(args) => tasks::list(args).await,
            Command::Search(args) => tasks::search(args).await,
            Command::Cancel(args) => changes::cancel(args).await,
            Command::Update(args) => changes::update(args).await,
            Command::CancelMany(args) => changes::cancel_many(args).await,
            Command::UpdateMany(args) => changes::update_many(args).await,
            Command::Topic(args) => topic::run(args).await,
            Command::Schedule(args) => schedule::run(args).await,
            Command::Dead(args) => dead::run(args).await,
            Command::Destination(args) => destination::run(args).await,
            Command::Instances(args) => instances::run(args).await,
            Command::Stats(args) => stats::run(args).await,
            Command::Forecast(args) => forecast::run(args).await,
            Command::Audit(args) => audit::run(args).await,
            Command::Export(args) => export::run(args).await,
            Command::Import(args) => import::run(args).await,
            Command::Move(args) => migrate::run(args).await,
            Command::Openapi(_) => openapi::run(),
        }
    });
    // A blocking read (stdin, a DNS lookup) must not delay the exit.
    runtime.shutdown_background();
    code
}

/// An error and its causes on one line. A cause that is already part of the text is not repeated.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |said, cause| {
        let cause = cause.to_string();
        if said.contains(&cause) { said } else { format!("{said}: {cause}") }
    })
}

fn code_of(error: &anyhow::Error) -> Code {
    let is_configuration = error.is::<settings::Error>()
        || error.downcast_ref::<StartError>().is_some_and(StartError::is_configuration)
        || matches!(error.downcast_ref(), Some(crate::store::Error::Misconfigured(_)));
    if is_configuration { Code::BadConfiguration } else { Code::Failed }
}

/// Starts the logs with these settings, at `level` instead if given.
fn start_logs(
    settings: &Settings,
    level: Option<&str>,
) -> Result<telemetry::Level, telemetry::Error> {
    telemetry::init(&telemetry::Params {
        level: level.unwrap_or(&settings.log.level).to_owned(),
        json: settings.log.format == LogFormat::Json,
    })
}

#[cfg(test)]
mod tests;
