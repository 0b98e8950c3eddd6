//! Hours of the week in which work may be done: `"02:00-05:00"`, `"Sat,Sun 02:00-09:00"`, `"Mon-Fri 22:00-06:00"`.
//!
//! Local time, in minutes. A window that ends before it begins passes midnight, and belongs to the day on which it
//! begins.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Minutes in a day.
const DAY: u16 = 24 * 60;

/// Names of the days, as they are written.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A day of the week: 0 is Monday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weekday(u8);

impl Weekday {
    /// A day of the week; Monday is 0, and 7 is Monday again.
    pub fn from_monday(day: u32) -> Weekday {
        Weekday((day % 7) as u8)
    }

    fn previous(self) -> Weekday {
        Weekday((self.0 + 6) % 7)
    }
}

/// One window of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The days on which it begins: bit 0 is Monday.
    days: u8,
    from: u16,
    to: u16,
}

/// Windows of the week; an empty one has no hours at all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule(pub Vec<Window>);

/// A text is no window of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a window of the week such as \"02:00-05:00\" or \"Sat,Sun 02:00-09:00\"")]
pub struct ParseWindowError;

impl Window {
    fn contains(self, day: Weekday, minute: u16) -> bool {
        let begins_on = |day: Weekday| self.days & 1 << day.0 != 0;
        if self.from < self.to {
            begins_on(day) && (self.from..self.to).contains(&minute)
        } else {
            begins_on(day) && minute >= self.from || begins_on(day.previous()) && minute < self.to
        }
    }
}

impl Schedule {
    /// Whether a minute of a day (0 to 1439) lies in one of the windows.
    pub fn contains(&self, day: Weekday, minute: u16) -> bool {
        self.0.iter().any(|window| window.contains(day, minute))
    }

    /// Minutes of the day at which a window may begin or end.
    pub fn changes(&self) -> impl Iterator<Item = u16> {
        self.0.iter().flat_map(|window| [window.from, window.to])
    }

    /// Whether there are no windows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As [`FromStr`] reads it.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != 0x7F {
            let days = DAYS.iter().enumerate().filter(|(day, _)| self.days & 1 << day != 0);
            let names: Vec<&str> = days.map(|(_, name)| *name).collect();
            write!(f, "{} ", names.join(","))?;
        }
        let to = if self.to == 0 { DAY } else { self.to };
        write!(f, "{:02}:{:02}-{:02}:{:02}", self.from / 60, self.from % 60, to / 60, to % 60)
    }
}

impl FromStr for Window {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Window, ParseWindowError> {
        let text = text.trim();
        let (days, hours) = text.split_at(text.find(|sign: char| sign.is_ascii_digit()).ok_or(ParseWindowError)?);
        let days = match days.strip_suffix(char::is_whitespace) {
            Some(days) => days_of(days).ok_or(ParseWindowError)?,
            None if days.is_empty() => 0x7F,
            None => return Err(ParseWindowError),
        };
        let (from, to) = hours.split_once('-').ok_or(ParseWindowError)?;
        let (from, to) = (minute_of(from).ok_or(ParseWindowError)?, minute_of(to).ok_or(ParseWindowError)?);
        if from == to || from == DAY {
            return Err(ParseWindowError);
        }
        Ok(Window { days, from, to: if to == DAY { 0 } else { to } })
    }
}

/// Reads `Sat,Sun` or `Mon-Fri`, in any case.
fn days_of(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|known| known.eq_ignore_ascii_case(name.trim()));
    let mut days = 0;
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(part)?, day(part)?),
        };
        let length = (last + 7 - first) % 7;
        days |= (0..=length).fold(0, |days, step| days | 1 << ((first + step) % 7));
    }
    Some(days)
}

/// Reads `22:30` into minutes after midnight; `24:00` is the end of the day.
fn minute_of(time: &str) -> Option<u16> {
    let (hours, minutes) = time.trim().split_once(':')?;
    let digits = |text: &str| text.len() <= 2 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hours) || minutes.len() != 2 || !digits(minutes) {
        return None;
    }
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let minute = hours * 60 + minutes;
    (minutes < 60 && minute <= DAY).then_some(minute)
}

#[cfg(test)]
mod tests {
    use super::{Schedule, Weekday, Window};

    const SATURDAY: u32 = 5;

    fn schedule(windows: &[&str]) -> Schedule {
        Schedule(windows.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn contains(windows: &[&str], day: u32, time: (u16, u16)) -> bool {
        schedule(windows).contains(Weekday::from_monday(day), time.0 * 60 + time.1)
    }

    #[test]
    fn a_window_without_days_is_open_every_day() {
        for day in 0..7 {
            assert!(contains(&["02:00-05:00"], day, (2, 0)) && contains(&["02:00-05:00"], day, (4, 59)));
            assert!(!contains(&["02:00-05:00"], day, (5, 0)) && !contains(&["02:00-05:00"], day, (1, 59)));
        }
    }

    #[test]
    fn a_window_past_midnight_belongs_to_the_day_on_which_it_begins() {
        let night = ["Sat 22:30-06:00"];
        assert!(contains(&night, SATURDAY, (23, 0)) && contains(&night, SATURDAY + 1, (5, 59)));
        assert!(!contains(&night, SATURDAY, (5, 0)) && !contains(&night, SATURDAY + 1, (23, 0)));
    }

    #[test]
    fn a_window_is_read_as_it_is_written() {
        for text in ["02:00-05:00", "Sat,Sun 22:30-06:00", "00:00-24:00"] {
            assert_eq!(text.parse::<Window>().unwrap().to_string(), text);
        }
        assert_eq!("mon-wed 2:00-3:00".parse::<Window>().unwrap().to_string(), "Mon,Tue,Wed 02:00-03:00");
    }

    #[test]
    fn days_may_be_listed_and_ranges_may_pass_the_end_of_the_week() {
        let windows: [(&str, &[u32]); 3] = [
            ("Sat,Sun 02:00-09:00", &[5, 6]),
            ("fri-mon 2:00-9:00", &[4, 5, 6, 0]),
            ("Tue, Thu  2:00 - 9:00", &[1, 3]),
        ];
        for (text, open) in windows {
            for day in 0..7 {
                assert_eq!(contains(&[text], day, (3, 0)), open.contains(&day), "{text} on day {day}");
            }
        }
    }

    #[test]
    fn a_schedule_is_open_while_any_of_its_windows_is() {
        let hours = ["Sat,Sun 02:00-09:00", "03:00-05:00"];
        assert!(contains(&hours, SATURDAY, (8, 0)) && contains(&hours, 0, (4, 0)) && !contains(&hours, 0, (8, 0)));
        assert!(!contains(&[], 0, (4, 0)));
    }

    #[test]
    fn a_window_may_end_with_the_day() {
        assert!(contains(&["22:00-24:00"], 0, (23, 59)) && !contains(&["22:00-24:00"], 0, (0, 0)));
        assert!(contains(&["00:00-24:00"], 0, (0, 0)) && contains(&["00:00-24:00"], 3, (23, 59)));
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "",
            "2-5",
            "02:00-02:00",
            "02:00",
            "25:00-26:00",
            "24:00-05:00",
            "02:60-05:00",
            "Sonntag 02:00-05:00",
            "Sat, 02:00-05:00",
            "Sat02:00-05:00",
            "02:00-05:00 Sat",
        ] {
            assert!(text.parse::<Window>().is_err(), "{text:?}");
        }
    }
}
