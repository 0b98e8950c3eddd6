//! What a household does in a year: what it gets, reads and deletes. It does not know where files lie.
//!
//! - At the start: 60 series of three seasons, 400 films, 300 albums; of the two years before.
//! - A day brings four episodes, a film, and an album every third day; every other day an old film is deleted.
//! - Each evening three people choose: half of the time three episodes of a series one after the other, else a film or
//!   an album. The newest is chosen most often (Zipf, exponent 1).

use umbrella_units::SplitMix64;

/// Days that are simulated.
pub(crate) const DAYS: u64 = 365;
pub(crate) const DAY: u64 = 24 * 3600;
const MINUTE: u64 = 60;
const MIB: u64 = 1 << 20;

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A new file.
    Arrives { path: String, size: u64 },
    /// A file is read for `secs` seconds.
    Read { path: String, secs: u64 },
    /// A file goes.
    Deleted { path: String },
}

/// An event at a time, in seconds since the start of the world.
pub(crate) type Timed = (u64, Event);

/// How long the library has been collected before the year begins.
pub(crate) const BEFORE: u64 = 730 * DAY;

/// A series, film or album: its files, in order.
struct Title {
    files: Vec<String>,
}

struct Household {
    random: SplitMix64,
    events: Vec<Timed>,
    series: Vec<Title>,
    films: Vec<Title>,
    albums: Vec<Title>,
    made: u64,
}

/// All that happens, in order.
pub(crate) fn events(seed: u64) -> Vec<Timed> {
    let mut house = Household {
        random: SplitMix64::new(seed),
        events: Vec::new(),
        series: Vec::new(),
        films: Vec::new(),
        albums: Vec::new(),
        made: 0,
    };
    house.collect();
    for day in 0..DAYS {
        house.day(BEFORE + day * DAY);
    }
    house.events.sort_by_key(|(at, _)| *at);
    house.events
}

impl Household {
    /// The library of the years before: evenly over the time, the oldest title first.
    fn collect(&mut self) {
        for number in 0..60 {
            self.series.push(Title { files: Vec::new() });
            for episode in 0..30 {
                self.episode(number, (number as u64 * 30 + episode) * BEFORE / 1800);
            }
        }
        for number in 0..400 {
            self.film(number * BEFORE / 400);
        }
        for number in 0..300 {
            self.album(number * BEFORE / 300);
        }
    }

    fn day(&mut self, midnight: u64) {
        for _ in 0..4 {
            let number = self.series.len() - 1 - self.zipf(self.series.len());
            let at = midnight + self.random.below(DAY);
            self.episode(number, at);
        }
        let at = midnight + self.random.below(DAY);
        self.film(at);
        if self.random.below(3) == 0 {
            self.album(midnight + 12 * 3600);
        }
        if self.random.random_bool() {
            // One of the older half.
            let film = self.random.index(self.films.len() / 2);
            let path = self.films.remove(film).files.remove(0);
            self.events.push((midnight + 9 * 3600, Event::Deleted { path }));
        }
        for _ in 0..3 {
            let at = midnight + 18 * 3600 + self.random.below(5 * 60) * MINUTE;
            self.evening(at);
        }
    }

    /// Somebody sits down.
    fn evening(&mut self, at: u64) {
        let kind = self.random.below(4);
        let count = self.titles(kind).len();
        let newest = self.zipf(count);
        let files = self.titles(kind)[count - 1 - newest].files.clone();
        let (from, files_read, secs) = match kind {
            0 | 1 => (self.random.index(files.len().saturating_sub(2).max(1)), 3, 45 * MINUTE),
            2 => (0, 1, 110 * MINUTE),
            _ => (0, 12, 4 * MINUTE),
        };
        let chosen = files.iter().skip(from).take(files_read);
        let read = chosen.zip(0..).map(|(path, turn)| (at + turn * secs, Event::Read { path: path.clone(), secs }));
        self.events.extend(read);
    }

    fn titles(&self, kind: u64) -> &[Title] {
        match kind {
            0 | 1 => &self.series,
            2 => &self.films,
            _ => &self.albums,
        }
    }

    fn episode(&mut self, number: usize, at: u64) {
        let title = &mut self.series[number];
        let episode = title.files.len();
        let path = format!("/TV/Series {number}/Season {}/{episode}.mkv", episode / 10 + 1);
        title.files.push(path.clone());
        self.events.push((at, Event::Arrives { path, size: 1536 * MIB }));
    }

    fn film(&mut self, at: u64) {
        self.made += 1;
        let path = format!("/films/Film {}/film.mkv", self.made);
        self.films.push(Title { files: vec![path.clone()] });
        self.events.push((at, Event::Arrives { path, size: 6144 * MIB }));
    }

    fn album(&mut self, at: u64) {
        self.made += 1;
        let files: Vec<String> = (0..12).map(|track| format!("/music/Album {}/{track}.flac", self.made)).collect();
        self.events.extend(files.iter().map(|path| (at, Event::Arrives { path: path.clone(), size: 30 * MIB })));
        self.albums.push(Title { files });
    }

    /// A rank from 0 to below `count`; the second half as often as the first one, and so on.
    fn zipf(&mut self, count: usize) -> usize {
        let rank = libm::pow(count as f64 + 1.0, self.random.unit());
        (rank as usize - 1).min(count - 1)
    }
}
