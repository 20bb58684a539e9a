//! Checks the workflows of CI: `.github/workflows` starts chores and holds no logic.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::mesh_tools::ACTIONLINT;
use crate::process::run;

/// The workflows have no mistake that actionlint knows. Where there is no Go to build it, the check says so and passes.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let Some(actionlint) = ACTIONLINT.obtain()? else {
        return Ok(());
    };
    // It finds no files by itself in a clone whose `.git` is a file. The linters of shells and Python that it would start
    // are left out: their versions would decide the result.
    let workflows = fs::read_dir(root.join(".github/workflows"))?;
    let workflows: Vec<_> = workflows.collect::<Result<_, _>>()?;
    let mut lint = Command::new(actionlint);
    lint.current_dir(root).args(["-shellcheck=", "-pyflakes="]);
    run(lint.args(workflows.iter().map(|entry| entry.path())))
}
