//! The papers' figures, run again: for each claim the published value, ours, and whether it holds.
//!
//! One folder a paper, one function a figure or table. Parameters come from the papers' text and from datasheets. Where
//! the text is silent, the assumption is shown beside the figure. A claim that does not hold is reported as such.
//!
//! A figure lists its runs as [`Cell`]s and judges their outcomes. So all runs of a paper go through one pool of
//! threads, with one progress bar.

#![allow(clippy::unnecessary_wraps, reason = "all figures have one signature; some read traces")]

mod claim;
mod frozen;
mod kernel;
pub mod mram;
pub mod nvcache;
pub mod on_inputs;
mod processor;
pub mod r_lfs;
mod statistics;
pub mod tesa;
#[cfg(test)]
mod tests;
pub mod umbrellafs;

use rustc_hash::FxHashMap;
use thiserror::Error;
use umbrella_lab::experiment::{self, Cell, LabError, Machine, Observe};
use umbrella_lab::result::{Outcome, Table};
use umbrella_lab::write_back::MachineSpec;
use umbrella_units::did_you_mean;

pub use claim::{Claim, Expect, OnInput, OtherReading, Reading, VISIBLE, Verdict};
pub use frozen::{Frozen, Measured, frozen};

/// How much of it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Sizes of the paper; all figures of a paper take less than half an hour on two cores.
    Full,
    /// Sizes shrunk so that all figures of a paper take less than a minute.
    Quick,
}

impl Effort {
    /// The share of the paper's sizes: all, or that of a quick run.
    fn scale(self, quick: f64) -> f64 {
        match self {
            Effort::Full => 1.0,
            Effort::Quick => quick,
        }
    }
}

/// The runs that a figure needs.
pub(crate) type WriteBackCells = on_inputs::Cells<MachineSpec>;

/// One figure or table of a paper.
pub struct Figure {
    /// Its number, such as `8` or `Table I`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What had to be assumed, because the paper does not say; empty when nothing.
    pub assumed: &'static str,
    /// The runs that it needs.
    pub cells: fn(Effort) -> WriteBackCells,
    /// What its outcomes, in the order of the cells, come to for the paper's claims.
    pub measure: fn(&[Outcome]) -> Vec<Measured>,
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
    #[error("no paper is called {name:?}{} (known: {})", did_you_mean(name, known.iter().copied()), known.join(", "))]
    Paper { name: String, known: Vec<&'static str> },
    #[error("{paper} has no figure {figure:?} here (known: {})", known.join(", "))]
    Figure { paper: &'static str, figure: String, known: Vec<&'static str> },
}

/// The paper of that name.
pub fn paper(name: &str) -> Result<&'static Paper, UnknownPaper> {
    PAPERS.iter().copied().find(|paper| paper.name == name).ok_or_else(|| UnknownPaper::Paper {
        name: name.to_owned(),
        known: PAPERS.iter().map(|paper| paper.name).chain([nvcache::NAME, r_lfs::NAME]).collect(),
    })
}

impl Figure {
    /// What these outcomes say of the claims of the paper that it is of.
    pub fn evaluate(&self, paper: &str, outcomes: &[Outcome]) -> Vec<Claim> {
        frozen::evaluate(paper, self.id, &(self.measure)(outcomes))
    }
}

impl Paper {
    /// The figures of that number; all when `None`.
    pub fn choose(&'static self, figure: Option<&str>) -> Result<Vec<&'static Figure>, UnknownPaper> {
        choose(self.name, self.figures, |figure| figure.id, figure)
    }
}

/// The figures of a paper with this number; all when `None`.
fn choose<'a, F>(
    paper: &'static str,
    figures: &'a [F],
    id: impl Fn(&F) -> &'static str,
    wanted: Option<&str>,
) -> Result<Vec<&'a F>, UnknownPaper> {
    let is_wanted = |figure: &&F| wanted.is_none_or(|wanted| id(figure).eq_ignore_ascii_case(wanted));
    let chosen: Vec<&F> = figures.iter().filter(is_wanted).collect();
    if chosen.is_empty() {
        let known = figures.iter().map(id).collect();
        return Err(UnknownPaper::Figure { paper, figure: wanted.unwrap_or_default().to_owned(), known });
    }
    Ok(chosen)
}

/// What a figure came to.
#[derive(Debug, Clone)]
pub struct Judged<M: Machine> {
    /// The figure's number or name.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What had to be assumed.
    pub assumed: &'static str,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its runs.
    pub outcomes: Vec<M::Outcome>,
}

/// Runs the cells of several figures, those that figures share once, and judges each figure whose cells all have
/// outcomes.
fn run_cells<M: Machine>(
    of_figures: Vec<Vec<Cell<M>>>,
    threads: usize,
    observe: impl FnOnce(&[Cell<M>]) -> Box<dyn Observe<M>>,
    evaluate: impl Fn(usize, Vec<&Cell<M>>, Vec<M::Outcome>) -> Option<Judged<M>>,
) -> Result<Vec<Judged<M>>, LabError> {
    let mut all: Vec<Cell<M>> = Vec::new();
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    let mut enter = |cell: Cell<M>| {
        *known.entry(cell.identity()).or_insert_with(|| {
            all.push(cell);
            all.len() - 1
        })
    };
    let numbers: Vec<Vec<usize>> =
        of_figures.into_iter().map(|cells| cells.into_iter().map(&mut enter).collect()).collect();
    let observer = observe(&all);
    let outcomes = experiment::run(&all, threads, &*observer)?.unless_failed()?;
    let judged = numbers.iter().enumerate().filter_map(|(figure, numbers)| {
        let of_figure = numbers.iter().map(|number| outcomes[*number].clone()).collect::<Option<Vec<_>>>()?;
        evaluate(figure, numbers.iter().map(|number| &all[*number]).collect(), of_figure)
    });
    Ok(judged.collect())
}

/// Runs the figures of a paper, `threads` runs at a time. Runs that figures share are run once. Figures whose runs were
/// not all finished, because the observer stopped them, are left out.
pub fn run(
    paper: &'static str,
    figures: &[&'static Figure],
    effort: Effort,
    threads: usize,
    observe: impl FnOnce(&[Cell<MachineSpec>]) -> Box<dyn Observe<MachineSpec>>,
) -> Result<Vec<Judged<MachineSpec>>, LabError> {
    let cells = figures.iter().map(|figure| (figure.cells)(effort)).collect::<Result<_, _>>()?;
    run_cells(cells, threads, observe, |number, _, outcomes| {
        let figure = figures[number];
        let finished = outcomes.iter().all(|outcome| !outcome.interrupted);
        let judged = || Judged {
            figure: figure.id,
            title: figure.title,
            assumed: figure.assumed,
            claims: figure.evaluate(paper, &outcomes),
            tables: Vec::new(),
            outcomes: outcomes.clone(),
        };
        finished.then(judged)
    })
}
