//! The trade-offs of an advice as a page.

use umbrella_lab::advice::sleep::SleepAdvice;
use umbrella_lab::result::Unit;
use umbrella_lab::result::html::{Figure, PlotPoint, Rank, Tradeoff, tradeoff_page};

use super::DiskAdviceReport;
use super::text::{policy, setting_of_sleep};
use crate::commands::lab::setup::origin;

/// The page of these disks, below the text that is printed.
pub(super) fn of(disks: &[(&str, &DiskAdviceReport)], text: &str) -> String {
    let plots: Vec<Tradeoff> = disks.iter().flat_map(|(disk, report)| plots(disk, report)).collect();
    let first = disks.first().and_then(|(_, report)| report.traces.first());
    let title = first.map_or("", |trace| trace.trace.as_str());
    tradeoff_page(&format!("Advice: {title}"), text, &plots, &origin())
}

fn plots(disk: &str, report: &DiskAdviceReport) -> Vec<Tradeoff> {
    let heading = |of: &str| if disk.is_empty() { of.to_owned() } else { format!("{disk}: {of}") };
    let rank = |is_today: bool, is_best: bool| match (is_today, is_best) {
        (true, _) => Rank::Today,
        (_, true) => Rank::Best,
        _ => Rank::Tried,
    };
    let advice = &report.write_back;
    let points = advice.tried.iter().map(|of| PlotPoint {
        label: format!("{}, {}", policy(&of.policy), of.memory),
        at: (of.waited_s.mean, of.busy_s.mean),
        rank: rank(*of == advice.today, Some(of) == advice.best.as_ref()),
    });
    let mut plots = vec![Tradeoff {
        heading: heading("write-back policies and memory"),
        across: Figure { name: "programs wait", unit: Unit::Seconds },
        upwards: Figure { name: "disk busy", unit: Unit::Seconds },
        points: points.collect(),
    }];
    let SleepAdvice::Judged(judged) = &report.sleep else { return plots };
    let mut plot = |of: &str, name, unit, figure: fn(&umbrella_lab::advice::sleep::SleepFigures) -> f64| {
        let points = judged.tried.iter().map(|of| PlotPoint {
            label: setting_of_sleep(of),
            at: (of.watts.mean, figure(of)),
            rank: rank(*of == judged.today, Some(of) == judged.best.as_ref()),
        });
        plots.push(Tradeoff {
            heading: heading(of),
            across: Figure { name: "power in W", unit: Unit::Count },
            upwards: Figure { name, unit },
            points: points.collect(),
        });
    };
    plot("power and the motor", "starts a day", Unit::Count, |of| of.starts_a_day.mean);
    plot("power and wear", "written to the flash a day", Unit::Bytes, |of| of.flash_bytes_a_day.mean);
    plot("power and waiting", "requests that wait for the motor a day", Unit::Count, |of| of.waits_a_day.mean);
    plots
}
