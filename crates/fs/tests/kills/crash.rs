//! Kills: a child process runs operations, with its mover's work among them, and is killed at a random moment.
//! Assembled again, the pool must show what the model says after the last operation that ended, or after the one that
//! was under way.
//!
//! The child is this test binary again, running `child` alone; it writes the number of each operation before and after
//! it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::bench::{Bench, Ground, small_area};
use crate::check;
use crate::model::{Model, Ref};
use crate::ops::{Op, budget, first_seed, generate};
use crate::world::{Done, World, fail};

/// Where the child finds its branches, and what it is to do.
const ROOT: &str = "UMBRELLA_MODEL_CHILD_ROOT";
const SEED: &str = "UMBRELLA_MODEL_CHILD_SEED";

/// Operations whose effect the model knows beforehand, and that a child can do: mounts are the parent's.
fn operations(seed: u64) -> Vec<Op> {
    let fits = |op: &Op| {
        !matches!(op, Op::TakeAway { .. } | Op::GiveBack | Op::Exchange { .. } | Op::Remount { .. } | Op::Drain { .. })
    };
    // A mover as busy as it would be with a thread of its own. Root's files, as those of others get their owner in a
    // second step.
    let with_moves = |op: Op| match op {
        Op::Put { dir, name, perm, len, .. } => [Op::Put { dir, name, perm, uid: 0, len }, Op::Settle],
        op => [op, Op::Settle],
    };
    generate(seed, 150).into_iter().filter(fits).flat_map(with_moves).collect()
}

/// Every other one stages new files.
fn is_staged(seed: u64) -> bool {
    (seed / 2).is_multiple_of(2)
}

/// Not a test of its own: does nothing without its environment variables.
#[test]
fn child() {
    let (Ok(root), Ok(seed)) = (std::env::var(ROOT), std::env::var(SEED)) else { return };
    let seed: u64 = seed.parse().unwrap();
    let parents =
        Bench { root: PathBuf::from(root), dir: None, mounts: Vec::new(), staging: is_staged(seed).then(small_area) };
    let mut world = World::over(parents, seed as usize);
    let mut out = std::io::stdout();
    for (number, op) in operations(seed).into_iter().enumerate() {
        // One system call, so that what was said was said before the kill.
        out.write_all(format!("at {number}\n").as_bytes()).unwrap();
        out.flush().unwrap();
        world.apply(op).unwrap();
        if world.is_cut {
            break; // How much of the write fits on a branch that is full: there is no telling beforehand.
        }
    }
    println!("{}", if world.is_cut { "cut short" } else { "at end" });
    std::thread::sleep(Duration::from_secs(60));
}

/// Models after `count` operations and after one more; the second may be between the two where an operation has several
/// steps. None when a write was cut short by a full branch.
fn expected(seed: u64, count: usize) -> Done<Vec<Model>> {
    let mut world = World::new(Ground::Memory, seed as usize);
    let operations = operations(seed);
    let done = |op: Op, world: &mut World| world.apply(op).map_err(|text| format!("{op:?}: {text}"));
    for op in &operations[..count] {
        done(*op, &mut world)?;
    }
    let mut models = vec![world.model.clone()];
    match operations.get(count) {
        // Created, but not written yet.
        Some(Op::Put { .. }) => {
            let before = world.model.files.len();
            done(operations[count], &mut world)?;
            models.push(world.model.clone());
            if world.model.files.len() > before
                && let Some((_, file)) = world.model.files.last_key_value()
                && file.data().is_some()
            {
                world.model.files.last_entry().unwrap().get_mut().data_mut().unwrap().clear();
                models.push(world.model.clone());
            }
        }
        Some(op) => {
            done(*op, &mut world)?;
            models.push(world.model.clone());
        }
        None => {}
    }
    if world.is_cut {
        models.clear();
    }
    Ok(models)
}

/// What a regular file holds. The name may still be that of a pipe that the operation was to replace: reading one never
/// ends.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file());
    is_file.then(|| std::fs::read(path).ok())?
}

/// A write that was cut short: each byte is the old or the new one.
fn allow_half_writes(world: &World, before: &Model, after: &mut Model) {
    for (_, _, path, what) in after.names() {
        let Ref::File(key) = what else { continue };
        // A file that was made by the operation was empty before it.
        let old = before.files.get(&key).map_or(Some(&[][..]), |file| file.data().map(Vec::as_slice));
        let (Some(old), Some(new)) = (old, after.files[&key].data()) else { continue };
        let found = world.bench.places().iter().find_map(|place| contents(&place.join(&path[1..])));
        let Some(found) = found.filter(|_| old != new) else { continue };
        let at = |data: &[u8], at: usize| data.get(at).copied().unwrap_or(0);
        let mixed = (0..found.len()).all(|i| found[i] == at(old, i) || found[i] == at(new, i));
        let (shorter, longer) = (old.len().min(new.len()), old.len().max(new.len()));
        if mixed && (shorter..=longer).contains(&found.len()) {
            *after.files.get_mut(&key).unwrap().data_mut().unwrap() = found;
        }
    }
}

/// The state of a directory whose copies had different modes when the kill came: what both allow. Nothing is opened,
/// nobody is lost.
fn half_changed(before: &Model, after: &Model) -> Option<Model> {
    let mut between = before.clone();
    for (key, dir) in &mut between.dirs {
        let (old, new) = (dir.attrs.perm, after.dirs.get(key).map_or(dir.attrs.perm, |dir| dir.attrs.perm));
        dir.attrs.perm = old & new & 0o6777 | (old | new) & 0o1000;
    }
    let changed = between.dirs.iter().any(|(key, dir)| before.dirs[key].attrs.perm != dir.attrs.perm);
    changed.then_some(between)
}

fn kill_once(seed: u64) -> Done<usize> {
    let mut rng = StdRng::seed_from_u64(seed);
    let ground = if seed.is_multiple_of(2) { Ground::Memory } else { Ground::Disk };
    let make = if is_staged(seed) { World::staged } else { World::new };
    let mut world = make(ground, seed as usize);
    world.known.clear();
    world.pool = None;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(ROOT, world.bench.root())
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let stop_at = rng.random_range(5..200);
    let mut reached = None;
    let mut is_cut = false;
    for line in lines.by_ref() {
        let line = line.unwrap();
        is_cut = line.ends_with("cut short");
        if is_cut {
            break;
        }
        let Some((_, at)) = line.split_once("at ").filter(|(before, _)| !before.contains("panicked")) else { continue };
        reached = at.parse::<usize>().ok();
        if reached.is_none_or(|at| at >= stop_at) {
            break;
        }
    }
    // Somewhere in the operation, or in one of the next.
    std::thread::sleep(Duration::from_micros(rng.random_range(0..3000)));
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    if let Some(status) = ended {
        return fail(format!("the child ended by itself: {status}, in operation {reached:?}"));
    }
    for line in lines {
        let line = line.unwrap();
        is_cut |= line.ends_with("cut short");
        if let Some(at) = line.strip_prefix("at ") {
            reached = at.parse().ok();
        }
    }
    let done = reached.unwrap_or_else(|| operations(seed).len());
    world.pool = Some(world.bench.assemble(world.rules));
    let mut failures = Vec::new();
    let mut models = expected(seed, done)?;
    let Some(before) = models.first().filter(|_| !is_cut).cloned() else {
        return Ok(done);
    };
    for model in &mut models {
        allow_half_writes(&world, &before, model);
    }
    if let [before, after] = models.as_slice() {
        models.extend(half_changed(before, after));
    }
    for mut model in models {
        model.bury(&BTreeSet::new());
        world.drop_caches();
        world.model = model;
        // Twice: a number that the crash took back is given anew by the first look at the directory, and its listing
        // shows it then.
        let checked = check::all(&mut world).or_else(|_| check::all(&mut world));
        match checked {
            Ok(()) => return world.finish().map(|()| done).map_err(|text| format!("killed in {done}, then {text}")),
            Err(text) => failures.push(text),
        }
    }
    let under_way = operations(seed).get(done).copied();
    fail(format!(
        "killed in operation {done}, {under_way:?}; compared with before and after it:\n{}",
        failures.join("\n")
    ))
}

#[test]
fn a_kill_at_any_moment_leaves_what_was_there_before_the_operation_or_after_it() {
    let until = Instant::now() + budget(8);
    let mut seed = first_seed();
    let mut operations = 0;
    while Instant::now() < until {
        match kill_once(seed) {
            Ok(done) => operations += done,
            Err(text) => panic!("seed {seed}: {text}"),
        }
        seed += 1;
    }
    println!("{} kills after {operations} operations", seed - first_seed());
}
