//! What holds for every policy in the registry.

use proptest::prelude::*;
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey};

use super::script::{Plain, Step, policy, select, steps};
use crate::writeback::{DirtyPage, Event, policies};

fn check_all(steps: &[Step]) -> Result<(), TestCaseError> {
    for info in policies() {
        check(info.name, steps)?;
    }
    Ok(())
}

/// The policies whose sources spare pages in use (TESA, section III). Not asked of the policies: one that forgot it
/// would say so.
const SPARE_ACTIVE_PAGES: [&str; 4] = ["recency", "segment", "zone", "zone_segment"];

fn check(name: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut tested, mut twin, mut plain) = (policy(name), policy(name), Plain::default());
    let inactive_only = SPARE_ACTIVE_PAGES.contains(&name);
    let mut now = Nanos(0);
    let drain = [Step::Select(u64::MAX)];
    for &step in steps.iter().chain(&drain) {
        match step {
            Step::Tell(event) => {
                tested.on(now, event);
                twin.on(now, event);
                plain.on(now, event);
            }
            Step::Wait(time) => now = now + time,
            Step::Select(want) => {
                let may = |active: bool| !(active && inactive_only);
                let eligible = plain.pages.iter().filter(|page| may(page.active)).count();
                let out = select(&mut tested, now, want);
                prop_assert_eq!(&out, &select(&mut twin, now, want), "{} is not deterministic", name);
                let enough = usize::try_from(want).unwrap_or(usize::MAX).min(eligible);
                prop_assert!(out.len() >= enough, "{} gave {} of {} pages", name, out.len(), enough);
                for chosen in out {
                    let known = plain.remove(chosen.page);
                    prop_assert!(known.is_some(), "{}: {:?} is not dirty", name, chosen);
                    if let Some(page) = known {
                        let right = DirtyPage { page: page.key, block: BlockNo(page.block) };
                        prop_assert_eq!(chosen, right, "{}", name);
                        prop_assert!(may(page.active), "{} selected an active page", name);
                    }
                }
            }
        }
        let may = |active: bool| !(active && inactive_only);
        prop_assert_eq!(tested.dirty().0, plain.pages.len() as u64, "{} after {:?}", name, step);
        let eligible = plain.pages.iter().filter(|page| may(page.active)).count();
        prop_assert_eq!(tested.eligible().0, eligible as u64, "{} after {:?}", name, step);
    }
    prop_assert!(plain.pages.iter().all(|page| page.active && inactive_only), "{} lost pages", name);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_selects_every_page_once_and_in_the_same_way(steps in steps(150)) {
        check_all(&steps)?;
    }
}

#[test]
fn pages_of_hundreds_of_files_that_claim_the_same_blocks_are_not_lost() {
    let page = |file: u64, index: u64| PageKey { file: FileId(file), index: PageIndex(index) };
    let dirty = |n: u64| Event::Dirty { page: page(n / 3, n % 3), block: BlockNo(7 + n % 3), active: false };
    let mut steps: Vec<Step> = (0..900).map(|n| Step::Tell(dirty(n))).collect();
    // Those that came first leave first: who inherits their blocks came long after.
    steps.extend((0..450).map(|n| Step::Tell(Event::Clean { page: page(n / 3, n % 3) })));
    steps.push(Step::Select(5));
    check_all(&steps).unwrap_or_else(|error| panic!("{error}"));
}
