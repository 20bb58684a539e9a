//! `docs/commands.md`: the reference of every command, made from the declarations of the command line.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::generated::assert_generated;

const NAME: &str = "isotherm";

const INTRODUCTION: &str = "# Commands

`isotherm` is the service and the tools of its operator. `isotherm COMMAND --help` says what this page says. It is generated
from the program's own declarations: `UPDATE_DOCS=1 cargo test -p isotherm-ext-proc` writes it. The options of a command, such as
`--admin` of `isotherm replicas`, hold for the commands inside it.

## For scripts

With `--json`, a command prints JSON instead of a table: `replicas list`, `top --once`, `explain`, `check`, `regions`, `scaling show`,
`batch list`, `batch show` and `batch run`; `doctor` prints its faults. Messages go to standard error.

| exit code | meaning |
| --- | --- |
| 0 | The command did what it was asked. A signal stopped `serve` or `run`, and no request was broken. |
| 1 | A mistake: in a file, in a request, or a change that the service rejects. An error that `check`, `envoy check` or `doctor` finds. A program that `run` cannot start, or requests that did not end in time at its stop. |
| 2 | The command line is wrong. |
| 3 | The server that the command needs does not answer. |
| 130 | Ctrl-C ended `batch run`; the same command goes on. A second signal ended `serve` or `run` without a drain. |

## Completions, manual pages, and the schema of the file

```sh
source <(isotherm completions bash)
isotherm man man1
isotherm config-schema > isotherm.schema.json
```

`isotherm man` writes a page for each command into a folder: `man -l man1/isotherm.1` shows the first. An editor with a YAML language
server checks `isotherm.yaml` by the schema when the file begins with the line `# yaml-language-server: $schema=isotherm.schema.json`.
";

/// Returns the reference of every command as a Markdown page.
fn markdown(mut command: Command) -> String {
    command.build();
    let mut page = INTRODUCTION.to_owned();
    for inner in command.get_subcommands() {
        describe(inner, NAME, &mut page);
    }
    page
}

/// Adds a section for a command, and one for each command inside it. The options of a command hold for those inside it, too, and
/// stand in its own section alone.
fn describe(command: &Command, parent: &str, page: &mut String) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let is_inside = parent != NAME;
    // Writing to a String cannot fail.
    let _ = writeln!(page, "\n## `{name}`\n\n{}", text(about(command)));
    let arguments = command.get_arguments();
    let arguments: Vec<&Arg> = arguments
        .filter(|argument| is_shown(argument) && !(is_inside && argument.is_global_set()))
        .collect();
    if !arguments.is_empty() {
        page.push_str("\n| argument | default | meaning |\n| --- | --- | --- |\n");
    }
    for argument in arguments {
        let meaning = text(argument.get_long_help().or_else(|| argument.get_help()));
        let cells = [format!("`{}`", usage(argument)), default(argument), meaning];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
    for inner in command.get_subcommands() {
        describe(inner, &name, page);
    }
}

/// The default of an argument; a flag has none worth a word.
fn default(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let defaults = argument.get_default_values().iter();
    let defaults: Vec<String> = defaults
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    defaults.join(", ")
}

fn about(command: &Command) -> Option<&StyledStr> {
    command.get_long_about().or_else(|| command.get_about())
}

/// A text as one line, with the full stop that clap takes off.
fn text(text: Option<&StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.ends_with(['.', ']']) || line.is_empty() {
        true => line,
        false => line + ".",
    }
}

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version")
}

/// An argument as it is written on a command line.
fn usage(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    let takes_value = argument.get_action().takes_values();
    match (argument.get_long(), takes_value) {
        (Some(long), true) => format!("--{long} {}", values.join(" ")),
        (Some(long), false) => format!("--{long}"),
        (None, _) => values.join(" "),
    }
}

#[test]
fn the_reference_of_commands_is_generated_from_the_command_line() {
    assert_generated("docs/commands.md", &markdown(Cli::command()));
}
