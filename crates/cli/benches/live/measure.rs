//! One run: fresh copies of the images, the disks, the mount, the kernel's settings, the work, and everything on disk
//! at its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use crate::disk::{Figures as Counted, Image};
use crate::host;
use crate::kernel::{DirtyWatch, Keeper, WriteBackSettings};
use crate::place::Place;
use crate::report::Figures;
use crate::stack::{Stack, System};

/// A disk of a run.
pub(crate) struct DiskOf<'a> {
    /// Also the branch's.
    pub(crate) name: &'static str,
    pub(crate) profile: &'a str,
    pub(crate) image: &'a Image,
}

/// What a run is made of.
pub(crate) struct Run<'a> {
    pub(crate) system: &'a System,
    pub(crate) disks: &'a [DiskOf<'a>],
    pub(crate) settings: WriteBackSettings,
    /// Does the work below the path; how much was done: 1, where it is always the same.
    pub(crate) work: &'a dyn Fn(&Path, &Stack) -> Result<f64>,
    /// Looks at the disks afterwards, past the mount; adds figures.
    pub(crate) after: &'a dyn Fn(&Stack, &mut Figures) -> Result<()>,
}

impl Run<'_> {
    /// `cost`: seconds of the disk's own time, for the work that was done. The other figures are of the time until all
    /// was on disk.
    pub(crate) fn measure(&self, place: &Place, keeper: &Keeper) -> Result<Figures> {
        host::check()?;
        let images: Vec<PathBuf> =
            self.disks.iter().map(|disk| disk.image.copy(place, disk.name)).collect::<Result<_>>()?;
        let disks: Vec<(&str, &str, PathBuf)> =
            self.disks.iter().zip(&images).map(|(disk, image)| (disk.name, disk.profile, image.clone())).collect();
        let _deadline = host::Deadline::after(place.limit);
        let stack = Stack::start(place, self.system, &disks)?;
        let outcome = self.work(place, keeper, &stack);
        // Whatever error the limit caused.
        host::check()?;
        let stopped = stack.stop();
        outcome.and_then(|figures| stopped.map(|()| figures))
    }

    fn work(&self, place: &Place, keeper: &Keeper, stack: &Stack) -> Result<Figures> {
        // What mounting has left behind is not the work's.
        stack.sync()?;
        keeper.set(&self.settings, &stack.devices())?;
        let before = stack.figures()?;
        let dirty = DirtyWatch::start(&stack.devices());
        let begin = Instant::now();
        let done = (self.work)(stack.root(), stack)?;
        let worked = begin.elapsed();
        stack.sync()?;
        let drained = begin.elapsed();
        let most_dirty = dirty.most();
        drop(dirty);
        let counted: Vec<Counted> =
            stack.figures()?.iter().zip(&before).map(|(after, before)| after.since(before)).collect();
        let all = |name: &str| counted.iter().map(|figures| figures.get(name)).sum::<f64>();
        let requests = all("umbrella_disk_writes_count");
        let seconds = place.of_disk(drained).as_secs_f64();
        let mut figures = BTreeMap::from([
            ("cost", seconds / done),
            ("seconds", seconds),
            ("worked_seconds", place.of_disk(worked).as_secs_f64()),
            ("most_dirty_bytes", most_dirty.0 as f64),
            ("requests", requests),
            ("request_bytes", all("umbrella_disk_written_bytes") / requests.max(1.0)),
            ("distance_bytes", all("umbrella_disk_write_distance_bytes") / requests.max(1.0)),
            ("written_bytes", all("umbrella_disk_written_bytes")),
            ("read_bytes", all("umbrella_disk_read_bytes")),
            ("read_requests", all("umbrella_disk_reads_count")),
            ("flushes", all("umbrella_disk_flushes_count")),
            ("seek_cylinders", all("umbrella_emulated_disk_seek_cylinders_count")),
            ("busy_seconds", all("umbrella_emulated_disk_busy_seconds")),
            ("crossings", all("umbrella_emulated_disk_crossings_count")),
            ("erases", all("umbrella_emulated_disk_erases_count")),
        ]);
        (self.after)(stack, &mut figures)?;
        Ok(figures)
    }
}
