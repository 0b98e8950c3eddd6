//! `umbrella completions`: what a shell needs to complete command lines.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::output;

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella completions bash > /etc/bash_completion.d/umbrella
  umbrella completions zsh > /usr/share/zsh/site-functions/_umbrella")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "umbrella", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
