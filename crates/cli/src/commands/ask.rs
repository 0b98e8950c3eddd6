//! Questions on the terminal, one at a time.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Context, bail};

/// The user's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    Yes,
    No,
    /// Yes, and to all that would be asked after it.
    All,
    /// No, and the end.
    Quit,
}

/// Asks until it hears `all`, or does not ask at all.
#[derive(Debug)]
pub(super) struct Asker {
    yes_to_all: bool,
}

impl Asker {
    /// With `yes` nothing is asked. Without a terminal `yes` is needed.
    pub(super) fn new(yes: bool, what: &str) -> anyhow::Result<Asker> {
        if !yes && !std::io::stdin().is_terminal() {
            bail!(
                "{what} asks before each step, but standard input is not a terminal: give --yes to answer every \
                question with yes"
            );
        }
        Ok(Asker { yes_to_all: yes })
    }

    /// The answer to a question; the end of the input ends the questions.
    pub(super) fn ask(&mut self, question: &str) -> anyhow::Result<Consent> {
        if self.yes_to_all {
            return Ok(Consent::Yes);
        }
        loop {
            let mut error = std::io::stderr();
            let _ = write!(error, "{question} [y]es, [n]o, [a]ll, [q]uit: ").and_then(|()| error.flush());
            let mut line = String::new();
            if std::io::stdin().lock().read_line(&mut line).context("reading the answer")? == 0 {
                return Ok(Consent::Quit);
            }
            match reply(&line) {
                Some(Consent::All) => {
                    self.yes_to_all = true;
                    return Ok(Consent::Yes);
                }
                Some(reply) => return Ok(reply),
                None => {}
            }
        }
    }
}

fn reply(line: &str) -> Option<Consent> {
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(Consent::Yes),
        "n" | "no" => Some(Consent::No),
        "a" | "all" => Some(Consent::All),
        "q" | "quit" => Some(Consent::Quit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_word_or_its_first_letter_and_nothing_else_is_yes() {
        let replies = ["y", "YES\n", " n ", "all", "q", "", "\n", "yep", "1"].map(reply);
        let known =
            [Some(Consent::Yes), Some(Consent::Yes), Some(Consent::No), Some(Consent::All), Some(Consent::Quit)];
        assert_eq!(replies[..5], known);
        assert_eq!(replies[5..], [None; 4]);
    }
}
