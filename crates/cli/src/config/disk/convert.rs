//! From the shape of the file to a [`DiskSpec`]; every mistake is collected, so that one run shows them all.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use umbrella_model::device::{self, profile};
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger, Options};
use umbrella_units::{ByteSize, Nanos, PAGE_BYTES, SECTOR_BYTES};

use super::file::{CacheFile, DeviceFile, DiskFile, NbdFile, PowerFile};
use super::front::Front;
use super::log::log;
use super::name::DiskName;
use super::power::PowerSpec;
use super::scrub::scrub;
use super::sleep::SleepSpec;
use super::spec::{CacheSettings, CacheSpec, DeviceSpec, DiskSpec, NbdSpec, Speed, TlsSpec};
use super::values::{percent, word};
use crate::config::complaints::Complaints;
use crate::config::problem::Problem;
use crate::config::values::{Number, Scalar, all_names};

const MOST_CONNECTIONS: i64 = 1024;
/// Two buffers for a few writes each, at least.
const LEAST_MEMORY: ByteSize = ByteSize(64 << 10);
const MOST_MEMORY: ByteSize = ByteSize(4 << 30);
const VALID_MEMORY: &str = "64KiB to 4GiB";
const LEAST_QUIET: Nanos = Nanos::from_millis(10);
const MOST_QUIET: Nanos = Nanos::from_secs(3600);
const VALID_QUIET: &str = "10ms to 1h";
const VALID_SIZE: &str = "a multiple of 4096 bytes, and more than 0";

pub(super) const KINDS: [&str; 3] = ["file", "emulated", "memory"];

/// Turns the shape into a disk. A disk that is given no name has that of its `file`.
pub(super) fn disk(c: &mut Complaints, file: &DiskFile, path: &Path) -> Option<DiskSpec> {
    let name = name(c, file.name.as_ref(), path);
    let front = word(c, file.front.as_ref(), &Front::ALL.map(Front::name));
    let disk = device(c, &file.disk);
    let flash = file.flash.as_ref().map(|flash| device(c, flash));
    if let (Some(cache), None) = (&file.cache, &file.flash) {
        c.fail(cache.span(), Problem::CacheWithoutFlash);
    }
    if let Some(flash) = &file.flash {
        refuse_same_device(c, flash.get_ref(), file.disk.get_ref());
    }
    let settings = file.cache.as_ref().map_or_else(CacheSettings::default, |cache| settings(c, cache.get_ref()));
    let log = file.log.as_ref().map(|file| log(c, file));
    let power = file.power.as_ref().and_then(|power| power_of(c, power, file));
    let (nbd, scrub) = (nbd(c, &file.nbd), scrub(c, &file.scrub));
    let cache = match flash {
        Some(flash) => Some(CacheSpec { flash: flash?, settings }),
        None => None,
    };
    Some(DiskSpec { name: name?, read_only: file.read_only, front, disk: disk?, cache, log, power, scrub, nbd })
}

/// Only when a disk sleeps is decided by it, and a modelled one has watts of its own.
fn power_of(c: &mut Complaints, power: &Spanned<PowerFile>, file: &DiskFile) -> Option<PowerSpec> {
    let kind = file.disk.get_ref().kind.as_ref().map(|kind| kind.get_ref().as_str());
    if kind.is_some_and(|kind| kind != "file") {
        c.fail(power.span(), Problem::KeyOfOtherKind { key: "power", kinds: "\"file\"" });
    } else if file.flash.is_none() {
        c.fail(power.span(), Problem::PowerWithoutFlash);
    }
    super::power::power(c, power)
}

fn refuse_same_device(c: &mut Complaints, flash: &DeviceFile, disk: &DeviceFile) {
    if let (Some(path), Some(disk)) = (&flash.path, &disk.path)
        && Path::new(path.get_ref()) == Path::new(disk.get_ref())
    {
        c.fail(path.span(), Problem::SameDevice { path: path.get_ref().into() });
    }
}

fn name(c: &mut Complaints, given: Option<&Spanned<String>>, path: &Path) -> Option<DiskName> {
    let (name, span) = match given {
        Some(given) => (given.get_ref().parse(), given.span()),
        None => (DiskName::of_file(&path.file_name().unwrap_or_default().to_string_lossy()), 0..0),
    };
    name.map_err(|error| c.fail(span, Problem::DiskName { error })).ok()
}

/// A device, if its description makes one.
pub(super) fn device(c: &mut Complaints, file: &Spanned<DeviceFile>) -> Option<DeviceSpec> {
    let DeviceFile { kind, path, size, direct, profile, speed, .. } = file.get_ref();
    let kind = kind.as_ref().map_or(("file", file.span()), |kind| (kind.get_ref().as_str(), kind.span()));
    let path = path.as_ref().map(|path| (path.span(), c.absolute_path("path", path)));
    let size = size.as_ref().map(|given| (given.span(), self::size(c, given)));
    let direct = direct.as_ref().map(|direct| (direct.span(), *direct.get_ref()));
    let profile = profile.as_ref().map(|profile| (profile.span(), profile.get_ref()));
    let speed = speed.as_ref().map(|given| (given.span(), self::speed(c, given)));
    let mut foreign = |key: &'static str, place: Option<Range<usize>>, kinds: &'static str| {
        if let Some(place) = place {
            c.fail(place, Problem::KeyOfOtherKind { key, kinds });
        }
    };
    let place = |value: Option<&Range<usize>>| value.cloned();
    match kind.0 {
        "file" => {
            foreign("profile", place(profile.as_ref().map(|(span, _)| span)), "\"emulated\"");
            foreign("speed", place(speed.as_ref().map(|(span, _)| span)), "\"emulated\"");
            let path = path.or_else(|| needed(c, kind, "path"));
            Some(DeviceSpec::File {
                path: path?.1,
                size: size.and_then(|(_, size)| size),
                direct: direct.is_none_or(|(_, direct)| direct),
            })
        }
        "emulated" => {
            foreign("direct", place(direct.as_ref().map(|(span, _)| span)), "\"file\"");
            let profile = profile.or_else(|| needed(c, kind.clone(), "profile"));
            let (span, profile) = profile?;
            if path.is_none() && size.is_none() {
                c.fail(kind.1, Problem::SizeOfMemory);
            }
            let size = size.and_then(|(span, size)| Some((span, size?)));
            known_profile(c, span, profile, size.as_ref());
            Some(DeviceSpec::Emulated {
                profile: profile.clone(),
                speed: speed.and_then(|(_, speed)| speed).unwrap_or(Speed(1.0)),
                path: path.map(|(_, path)| path),
                size: size.map(|(_, size)| size),
            })
        }
        "memory" => {
            foreign("path", place(path.as_ref().map(|(span, _)| span)), "\"file\" and \"emulated\"");
            foreign("direct", place(direct.as_ref().map(|(span, _)| span)), "\"file\"");
            foreign("profile", place(profile.as_ref().map(|(span, _)| span)), "\"emulated\"");
            foreign("speed", place(speed.as_ref().map(|(span, _)| span)), "\"emulated\"");
            let size = size.or_else(|| needed(c, kind, "size"));
            Some(DeviceSpec::Memory { size: size?.1? })
        }
        other => {
            let valid = KINDS.map(str::to_owned).to_vec();
            c.fail(kind.1, Problem::UnknownValue { value: other.to_owned(), valid });
            None
        }
    }
}

/// Says that a key is missing.
fn needed<T>(c: &mut Complaints, (kind, span): (&str, Range<usize>), key: &'static str) -> Option<T> {
    c.fail(span, Problem::KindNeedsKey { kind: kind.to_owned(), key });
    None
}

fn size(c: &mut Complaints, given: &Spanned<Scalar>) -> Option<ByteSize> {
    let size = c.size("size", Some(given), VALID_SIZE)?;
    if size.0.is_multiple_of(PAGE_BYTES) {
        return Some(size);
    }
    let problem = Problem::OutOfRange { key: "size", given: given.get_ref().text(), valid: VALID_SIZE };
    c.fail(given.span(), problem);
    None
}

fn speed(c: &mut Complaints, given: &Spanned<Number>) -> Option<Speed> {
    let speed = Speed::new(given.get_ref().0);
    if speed.is_none() {
        let given_text = given.get_ref().0.to_string();
        c.fail(given.span(), Problem::OutOfRange { key: "speed", given: given_text, valid: "from 0.01 to 1000" });
    }
    speed
}

fn known_profile(c: &mut Complaints, span: Range<usize>, name: &str, size: Option<&(Range<usize>, ByteSize)>) {
    let profile = match profile(name) {
        Ok(profile) => profile,
        Err(unknown) => {
            let valid = unknown.known.into_iter().map(str::to_owned).collect();
            return c.fail(span, Problem::UnknownValue { value: unknown.name, valid });
        }
    };
    let capacity = profile.build(&device::Options::default()).capacity();
    let most = ByteSize(capacity.0.saturating_mul(SECTOR_BYTES));
    if let Some((span, size)) = size.filter(|(_, size)| *size > most) {
        c.fail(span.clone(), Problem::LargerThanProfile { size: *size, profile: profile.name, most });
    }
}

fn spin_down(c: &mut Complaints, given: Option<&Spanned<String>>) -> Option<SleepSpec> {
    let given = given?;
    given.get_ref().parse().map_err(|error| c.fail(given.span(), Problem::SpinDown { error })).ok()
}

fn settings(c: &mut Complaints, file: &CacheFile) -> CacheSettings {
    let default = CacheSettings::default();
    let options = Options {
        when: word(c, file.when.as_ref(), &FlushTrigger::ALL.map(FlushTrigger::name)),
        algorithm: word(c, file.algorithm.as_ref(), &Algorithm::ALL.map(Algorithm::name)),
        high: percent(c, "high", file.high.as_ref(), default.options.high),
        memory: memory(c, file.memory.as_ref(), default.options.memory),
        drain_share: percent(c, "drain_share", file.drain_share.as_ref(), default.options.drain_share),
        quiet: quiet(c, file.quiet.as_ref(), default.options.quiet),
    };
    CacheSettings { options, spin_down: spin_down(c, file.spin_down.as_ref()).unwrap_or(default.spin_down) }
}

fn memory(c: &mut Complaints, given: Option<&Spanned<Scalar>>, default: ByteSize) -> ByteSize {
    let size = c.size("memory", given, VALID_MEMORY).unwrap_or(default);
    let (Some(given), false) = (given, (LEAST_MEMORY..=MOST_MEMORY).contains(&size)) else { return size };
    let reported = Problem::OutOfRange { key: "memory", given: given.get_ref().text(), valid: VALID_MEMORY };
    c.fail(given.span(), reported);
    default
}

fn quiet(c: &mut Complaints, given: Option<&Spanned<Scalar>>, default: Nanos) -> Nanos {
    let time = c.duration("quiet", given, Duration::from_nanos(default.0));
    let nanos = Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (Some(given), false) = (given, (LEAST_QUIET..=MOST_QUIET).contains(&nanos)) else { return nanos };
    c.fail(given.span(), Problem::OutOfRange { key: "quiet", given: given.get_ref().text(), valid: VALID_QUIET });
    default
}

fn nbd(c: &mut Complaints, file: &NbdFile) -> NbdSpec {
    let listen = file.listen.as_ref().map(|listen| {
        let mut addresses = Vec::new();
        for (span, text) in all_names(listen) {
            match text.parse() {
                Ok(address) if addresses.contains(&address) => c.fail(span, Problem::ListensTwice { address }),
                Ok(address) => addresses.push(address),
                Err(error) => c.fail(span, Problem::Listen { error }),
            }
        }
        addresses
    });
    let default = NbdSpec::default().connections;
    let connections = file.connections.as_ref().map_or(default, |given| {
        let number = *given.get_ref();
        if (1..=MOST_CONNECTIONS).contains(&number) {
            return number as u16;
        }
        let problem = Problem::OutOfRange { key: "connections", given: number.to_string(), valid: "1 to 1024" };
        c.fail(given.span(), problem);
        default
    });
    NbdSpec { listen, connections, tls: tls(c, file) }
}

fn tls(c: &mut Complaints, file: &NbdFile) -> Option<TlsSpec> {
    let folder = file.tls.as_ref().map(|folder| c.absolute_path("tls", folder));
    let keys = [("tls_verify_peer", &file.tls_verify_peer), ("tls_required", &file.tls_required)];
    if folder.is_none() {
        for (key, given) in keys.iter().filter_map(|(key, given)| Some((*key, given.as_ref()?))) {
            c.fail(given.span(), Problem::WithoutTls { key });
        }
    }
    let [verify_peer, required] = keys.map(|(_, given)| given.as_ref().map(|given| *given.get_ref()));
    Some(TlsSpec { folder: folder?, verify_peer: verify_peer.unwrap_or(false), required: required.unwrap_or(true) })
}
