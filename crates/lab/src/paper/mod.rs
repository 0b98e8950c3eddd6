//! The papers' figures, run again: for each claim the published value, ours, and whether it holds.
//!
//! One folder a paper, one function a figure or table. Parameters come from the papers' text and from datasheets; where
//! the text is silent, the assumption stands beside the figure. A claim that does not hold is reported as such.
//!
//! A figure lists the runs that it needs as [`Cell`]s and judges their outcomes, so that all runs of a paper go through
//! one pool of threads, with one progress bar.

mod claim;
#[allow(clippy::unnecessary_wraps, reason = "all figures have one signature; some read traces")]
pub mod mram;
pub mod nvcache;
pub mod r_lfs;
mod table;
#[allow(clippy::unnecessary_wraps, reason = "all figures have one signature; some read traces")]
pub mod tesa;
#[allow(clippy::unnecessary_wraps, reason = "all figures have one signature; some read traces")]
pub mod umbrellafs;

use thiserror::Error;

pub use claim::{Claim, Expect, Verdict};
pub use table::Table;

use crate::experiment::{self, Cell, LabError, Observe, Results};
use crate::result::Outcome;

/// How much of it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Sizes of the paper; all figures of a paper take less than half an hour on two cores.
    Full,
    /// Sizes shrunk so that all figures of a paper take less than a minute.
    Quick,
}

/// One figure or table of a paper.
pub struct Figure {
    /// Its number, such as `8` or `Table I`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What had to be assumed, because the paper does not say; empty when nothing.
    pub assumed: &'static str,
    /// The runs that it needs.
    pub cells: fn(Effort) -> Result<Vec<Cell>, LabError>,
    /// What its outcomes, in the order of the cells, say of the paper's claims.
    pub judge: fn(&[Outcome]) -> Vec<Claim>,
}

/// A paper.
pub struct Paper {
    /// What it is called here.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its figures, in order.
    pub figures: &'static [Figure],
}

/// All papers on write-back. Those on hybrid disks and on logs have runs of other kinds: [`nvcache`], [`r_lfs`].
pub static PAPERS: &[&Paper] = &[&tesa::PAPER, &umbrellafs::PAPER, &mram::PAPER];

/// What does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum UnknownPaper {
    #[error("no paper is called {name:?} (known: {known})")]
    Paper { name: String, known: String },
    #[error("{paper} has no figure {figure:?} here (known: {known})")]
    Figure { paper: &'static str, figure: String, known: String },
}

/// The paper of that name.
pub fn paper(name: &str) -> Result<&'static Paper, UnknownPaper> {
    PAPERS.iter().copied().find(|paper| paper.name == name).ok_or_else(|| UnknownPaper::Paper {
        name: name.to_owned(),
        known: PAPERS.iter().map(|paper| paper.name).chain([nvcache::NAME, r_lfs::NAME]).collect::<Vec<_>>().join(", "),
    })
}

impl Paper {
    /// The figures of that number; all when `None`.
    pub fn choose(&'static self, figure: Option<&str>) -> Result<Vec<&'static Figure>, UnknownPaper> {
        let wanted = |of: &&Figure| figure.is_none_or(|figure| of.id.eq_ignore_ascii_case(figure));
        let figures: Vec<_> = self.figures.iter().filter(wanted).collect();
        if figures.is_empty() {
            return Err(UnknownPaper::Figure {
                paper: self.name,
                figure: figure.unwrap_or_default().to_owned(),
                known: self.figures.iter().map(|figure| figure.id).collect::<Vec<_>>().join(", "),
            });
        }
        Ok(figures)
    }
}

/// What a figure came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The figure's number.
    pub figure: &'static str,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// Its runs.
    pub outcomes: Vec<Outcome>,
}

/// Runs the figures, `threads` runs at a time. Runs that figures share are run once. Figures whose runs were not all
/// finished, because the observer stopped them, are left out.
pub fn run(
    figures: &[&'static Figure],
    effort: Effort,
    threads: usize,
    observe: impl FnOnce(&[Cell]) -> Box<dyn Observe>,
) -> Result<Vec<Judged>, LabError> {
    let mut all: Vec<Cell> = Vec::new();
    let mut names: rustc_hash::FxHashMap<String, usize> = rustc_hash::FxHashMap::default();
    let mut places = Vec::new();
    for figure in figures {
        let cells = (figure.cells)(effort)?;
        let place = |cell: Cell| {
            *names.entry(cell.identity()).or_insert_with(|| {
                all.push(cell);
                all.len() - 1
            })
        };
        places.push(cells.into_iter().map(place).collect::<Vec<_>>());
    }
    let observer = observe(&all);
    let Results { outcomes, error } = experiment::run(&all, threads, &*observer)?;
    if let Some(error) = error {
        return Err(error);
    }
    let judged = figures.iter().zip(places).filter_map(|(figure, places)| {
        let outcomes: Option<Vec<Outcome>> =
            places.iter().map(|place| outcomes[*place].clone().filter(|outcome| !outcome.interrupted)).collect();
        outcomes.map(|outcomes| Judged { figure: figure.id, claims: (figure.judge)(&outcomes), outcomes })
    });
    Ok(judged.collect())
}
