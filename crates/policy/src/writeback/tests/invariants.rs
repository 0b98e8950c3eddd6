//! What holds for every policy in the registry.

use proptest::prelude::*;
use umbrella_units::Nanos;

use super::script::{Plain, Step, policy, select, steps};
use crate::writeback::{DirtyPage, policies};

fn check_all(steps: &[Step]) -> Result<(), TestCaseError> {
    for info in policies() {
        check(info.name, steps)?;
    }
    Ok(())
}

/// The policies whose sources spare pages in use (TESA, section III). Not asked of the policies: one that forgot it would say so.
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
                        let right = DirtyPage { page: page.key, block: umbrella_units::BlockNo(page.block) };
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
