//! Papers whose claims are tested on every available input: the papers' own traces are not public.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbrella_lab::experiment::{Cell, LabError, Machine, Observe};
use umbrella_lab::result::Table;

use crate::{Effort, Judged, Measured, frozen, run_cells};

/// The runs that a figure needs.
pub(crate) type Cells<M> = Result<Vec<Cell<M>>, LabError>;

type MakeCells<M> = fn(&[Arc<<M as Machine>::Input>], Effort) -> Cells<M>;

/// One figure or table, of runs of all inputs.
pub struct InputFigure<M: Machine> {
    /// Its number or name.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What had to be assumed, or cannot be compared; empty when nothing.
    pub assumed: &'static str,
    /// The runs that it needs.
    pub(crate) cells: MakeCells<M>,
    /// What they come to for the paper's claims.
    pub(crate) measure: fn(&Runs<'_, M>) -> Vec<Measured>,
    /// What they came to.
    pub(crate) show: fn(&Runs<'_, M>) -> Vec<Table>,
}

pub(crate) fn no_claims<M: Machine>(_: &Runs<'_, M>) -> Vec<Measured> {
    Vec::new()
}

/// The runs of a figure.
pub struct Runs<'a, M: Machine> {
    inputs: &'a [Arc<M::Input>],
    cells: Vec<&'a Cell<M>>,
    outcomes: Vec<M::Outcome>,
}

impl<M: Machine + PartialEq> Runs<'_, M> {
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = &M::Outcome> {
        self.outcomes.iter()
    }

    /// The inputs that were run.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &M::Input> {
        self.inputs.iter().map(|input| &**input).filter(|input| self.on(input).next().is_some())
    }

    /// The machines on which an input was run, and what came of it.
    pub(crate) fn on(&self, input: &M::Input) -> impl Iterator<Item = (&M, &M::Outcome)> {
        let runs = self.cells.iter().zip(&self.outcomes);
        runs.filter(|(cell, _)| Arc::as_ptr(&cell.input) == std::ptr::from_ref(input))
            .map(|(cell, outcome)| (&cell.machine, outcome))
    }

    /// What this machine came to with that input.
    pub(crate) fn of(&self, input: &M::Input, machine: &M) -> Option<&M::Outcome> {
        self.on(input).find(|(of, _)| *of == machine).map(|(_, outcome)| outcome)
    }
}

/// The named traces that exist in the folder of open traces.
pub(crate) fn traces_in(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| folder.join(format!("{name}.csv.gz"))).filter(|path| path.is_file()).collect()
}

/// The synthetic inputs and these traces. Inputs of the same name get a number.
pub(crate) fn with_traces<I>(
    mut inputs: Vec<I>,
    traces: &[PathBuf],
    name: fn(&mut I) -> &mut String,
    read: impl Fn(&Path) -> Result<Vec<I>, LabError>,
) -> Result<Vec<Arc<I>>, LabError> {
    let mut names: Vec<String> = inputs.iter_mut().map(|input| name(input).clone()).collect();
    for path in traces {
        for mut input in read(path)? {
            let own = name(&mut input);
            let same = names.iter().filter(|other| *other == own).count();
            names.push(own.clone());
            if same > 0 {
                *own = format!("{own} ({})", same + 1);
            }
            inputs.push(input);
        }
    }
    Ok(inputs.into_iter().map(Arc::new).collect())
}

/// Runs the figures of a paper on these inputs, `threads` runs at a time. Runs that figures share are run once. Figures
/// whose runs were not all finished, because the observer stopped them, are left out.
pub fn run<M: Machine + PartialEq>(
    paper: &'static str,
    figures: &[&'static InputFigure<M>],
    inputs: &[Arc<M::Input>],
    effort: Effort,
    threads: usize,
    observe: impl FnOnce(&[Cell<M>]) -> Box<dyn Observe<M>>,
) -> Result<Vec<Judged<M>>, LabError> {
    let cells = figures.iter().map(|figure| (figure.cells)(inputs, effort)).collect::<Result<_, _>>()?;
    run_cells(cells, threads, observe, |number, cells, outcomes| {
        let figure = figures[number];
        let runs = Runs { inputs, cells, outcomes };
        let InputFigure { id, title, assumed, measure, show, .. } = *figure;
        let (claims, tables) = (frozen::evaluate(paper, id, &measure(&runs)), show(&runs));
        Some(Judged { figure: id, title, assumed, claims, tables, outcomes: runs.outcomes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_one_name_get_different_numbers() {
        let traces = ["a", "b"].map(PathBuf::from);
        let read = |_: &Path| Ok(vec!["week".to_owned()]);
        let inputs = with_traces(vec!["week".to_owned()], &traces, |input| input, read).expect("they are read");
        assert_eq!(inputs, ["week", "week (2)", "week (3)"].map(|name| Arc::new(name.to_owned())));
    }
}
