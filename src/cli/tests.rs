//! Tests of all commands together.

use super::*;

#[test]
fn the_arguments_are_consistent() {
    command().debug_assert();
}

/// The help shows an example that can be pasted, and explains each argument.
#[test]
fn every_command_explains_itself() {
    fn check(command: &clap::Command, of: &str) {
        let name = format!("{of} {}", command.get_name());
        assert!(command.get_about().is_some(), "{name} does not say what it does");
        for argument in command.get_arguments() {
            assert!(
                argument.get_help().is_some(),
                "{name} does not say what {} is",
                argument.get_id()
            );
        }
        for verb in command.get_subcommands() {
            check(verb, &name);
        }
    }
    let cli = command();
    check(&cli, "");
    for command in cli.get_subcommands() {
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(examples.starts_with("Examples:\n  "), "{} has no examples", command.get_name());
    }
}

#[test]
fn settings_are_refused_where_they_would_do_nothing() {
    let check = |words: &[&str], refused: bool| {
        let before = parse([&["delayd", "--set", "a.b=1"], words].concat());
        assert_eq!(before.is_err(), refused, "{words:?}");
        let behind = parse([&["delayd"], words, &["--set", "a.b=1"]].concat());
        assert_eq!(behind.is_err(), refused, "{words:?}");
    };
    check(&["serve"], false);
    check(&["check"], false);
    check(&["fsck", "--repair"], false);
    check(&["store", "new-id", "--yes"], false);
    check(&["format", "--raise"], false);
    check(&["healthcheck"], false);
    check(&["get", "t", "1"], true);
    check(&["pull", "t"], true);
    check(&["receive"], true);
    check(&["completions", "bash"], true);
    check(&["topic", "list"], true);
    check(&["export"], true);
}

/// The help listed --config and --set, but the commands refused them.
#[test]
fn the_help_lists_settings_where_they_are_taken() {
    let mut cli = command();
    cli.build();
    for command in cli.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        let mut helps = vec![command.render_long_help()];
        let verbs = command.get_subcommands_mut().filter(|verb| verb.get_name() != "help");
        helps.extend(verbs.map(clap::Command::render_long_help));
        for help in helps {
            let listed = help.to_string().contains("--config <FILE>");
            assert!(
                name == "help" || listed == CONFIGURED.contains(&name.as_str()),
                "{name}: {help}"
            );
        }
    }
}

/// With DELAYD_SERVER set, usage lines named `--server <URL>` as if it were required.
#[test]
fn an_errors_usage_is_the_one_of_the_commands_help() {
    let usage = |line: &str| {
        let said = parse(line.split(' ')).expect_err(line).to_string();
        said.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default().to_owned()
    };
    assert_eq!(
        usage("delayd get t --server http://a --token x"),
        "delayd get [OPTIONS] <TOPIC> <TASK_ID>|--key <KEY>|--idempotency-key <KEY>"
    );
    assert_eq!(usage("delayd topic set --server http://a"), "delayd topic set [OPTIONS] <TOPIC>");
    assert_eq!(usage("delayd move --server http://a"), "delayd move [OPTIONS] --to <URL>");
}

#[test]
fn settings_go_anywhere() {
    let cli =
        parse(["delayd", "--config", "x", "check", "--config", "y", "--set", "a.b=1"]).unwrap();
    assert!(matches!(cli.command, Command::Check(_)));
    assert_eq!(cli.configuration.sets, ["a.b=1"]);
}

#[test]
fn usage_errors_end_with_2() {
    let check = |line: &str| {
        let error = parse(line.split(' ')).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    };
    check("delayd");
    check("delayd --set a.b=1");
    check("delayd fly");
    check("delayd add orders {}");
    check("delayd add orders --in 1s --at 5 {}");
    check("delayd add orders --in soon {}");
    check("delayd add bad{topic} --in 1s {}");
    check("delayd get orders");
    check("delayd get orders 0");
    check("delayd cancel orders");
    check("delayd cancel orders 7 --key k");
    check("delayd update orders --in 1h");
    check("delayd update orders {} --in 1h");
    check("delayd update orders 7 --key k --in 1h");
    check("delayd pull orders --task-id 7 --key k");
    check("delayd pull orders --key k --count 2");
    check("delayd pull orders --count 257");
    check("delayd pull orders --server ftp://a");
    check("delayd receive --status 99");
    check("delayd receive --bind nowhere");
    check("delayd demo --tasks 0");
    check("delayd backup");
    check("delayd fsck --mend");
    check("delayd store");
    check("delayd store new-id");
    check("delayd ack orders 1");
    check("delayd extend orders 1 receipt");
    check("delayd list orders gone");
    check("delayd list orders --state dead");
    check("delayd get orders 7 --wait=soon");
    check("delayd list orders --limit 1001");
    check("delayd update orders 1");
    check("delayd topic");
    check("delayd topic purge orders");
    check("delayd topic set orders --reset all");
    check("delayd dead purge orders");
    check("delayd dead purge orders --all");
    check("delayd dead purge orders --reason x");
    check("delayd dead replay orders 1 --all");
    check("delayd destination hold");
    check("delayd completions tcl");
    check("delayd import --batch 0");
    check("delayd bench add");
    check("delayd move --batch 0 --to http://a");
    check("delayd move --to ftp://a");
    check("delayd move");
}

#[test]
fn every_variable_of_an_option_is_known() {
    let variables = option_variables();
    for variable in
        ["DELAYD_SERVER", "DELAYD_TOKEN", "DELAYD_TO", "DELAYD_TO_TOKEN", "DELAYD_RECEIVE_SECRET"]
    {
        assert!(variables.contains(&variable.to_owned()), "{variables:?}");
    }
}

#[test]
fn bad_configuration_ends_with_78() {
    let error = Settings::load(&[], &["http.bnd=1".into()], std::iter::empty()).unwrap_err();
    assert_eq!(code_of(&error.into()), Code::BadConfiguration);
    let error = crate::store::Error::Misconfigured("wrong password".into());
    assert_eq!(code_of(&anyhow::Error::from(error).context("store")), Code::BadConfiguration);
    assert_eq!(code_of(&anyhow::anyhow!("else")), Code::Failed);
}

#[test]
fn an_error_says_each_cause_once() {
    let missing = Settings::load(&["/nowhere".into()], &[], std::iter::empty()).unwrap_err();
    assert_eq!(sentence(&missing.into()).matches("No such file").count(), 1);
    assert_eq!(sentence(&anyhow::anyhow!("inner").context("outer")), "outer: inner");
}
