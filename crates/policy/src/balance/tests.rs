use proptest::prelude::*;

use super::*;

const TO_5_PERCENT: u32 = 5_000;

fn member(total: u64, used: u64) -> Member {
    Member { total: ByteSize(total), used: ByteSize(used), room: ByteSize(total - used), files: u64::MAX }
}

fn units(on: usize, sizes: &[u64]) -> Vec<Unit> {
    sizes.iter().map(|bytes| Unit { on, bytes: ByteSize(*bytes), files: 1, class: 0 }).collect()
}

/// Members whose units may be anywhere.
fn even_out(members: &[Member], units: &[Unit]) -> Plan {
    let anywhere = vec![(0..members.len()).collect()];
    plan(&BalanceRequest { members, units, classes: &anywhere, within: TO_5_PERCENT })
}

fn used(plan: &Plan) -> Vec<u64> {
    plan.used.iter().map(|used| used.0).collect()
}

#[test]
fn the_fullest_member_gives_to_the_emptiest_until_they_are_near() {
    let members = [member(1000, 900), member(1000, 500), member(1000, 100)];
    let plan = even_out(&members, &units(0, &[10; 90]));
    // The mean is 50 %: 47.5 % to 52.5 % costs least.
    assert_eq!(used(&plan), [520, 500, 480]);
    assert_eq!((plan.moves.len(), plan.least.0), (38, 375));
}

#[test]
fn members_that_are_even_enough_stay_as_they_are() {
    let plan = even_out(&[member(1000, 550), member(2000, 1000)], &units(0, &[1; 550]));
    assert_eq!((plan.moves.len(), plan.least.0), (0, 0));
}

#[test]
fn large_files_go_first_and_a_small_one_fits_what_is_left() {
    let plan = even_out(&[member(1000, 500), member(1000, 0)], &units(0, &[7, 200, 20, 150, 100, 23]));
    let sizes: Vec<u64> = plan.moves.iter().map(|next| [7, 200, 20, 150, 100, 23][next.unit]).collect();
    assert_eq!(sizes, [200, 23, 7], "225 are above the window, and the smallest goes beyond it");
}

#[test]
fn a_file_that_would_only_swap_the_members_stays() {
    assert_eq!(even_out(&[member(1000, 600), member(1000, 0)], &units(0, &[600])).moves, []);
    // Nearer, though not even.
    let plan = even_out(&[member(1000, 800), member(1000, 0)], &units(0, &[500]));
    assert_eq!(used(&plan), [300, 500]);
}

#[test]
fn what_may_not_be_elsewhere_stays_and_what_has_no_room_too() {
    let members = [member(1000, 900), member(1000, 0), Member { room: ByteSize(50), ..member(1000, 0) }];
    let units: Vec<Unit> = (0..90).map(|_| Unit { on: 0, bytes: ByteSize(10), files: 1, class: 0 }).collect();
    let ask = |classes: &[Vec<usize>]| {
        let question = BalanceRequest { members: &members, units: &units, classes, within: TO_5_PERCENT };
        used(&plan(&question))
    };
    assert_eq!(ask(&[vec![0]]), [900, 0, 0]);
    assert_eq!(ask(&[vec![0, 2]]), [850, 0, 50]);
}

#[test]
fn a_member_gets_no_more_files_than_it_may_have() {
    let members = [member(1000, 900), Member { files: 7, ..member(1000, 0) }, Member { files: 0, ..member(1000, 0) }];
    assert_eq!(used(&even_out(&members, &units(0, &[10; 90]))), [830, 70, 0]);
    let album = Unit { on: 0, bytes: ByteSize(200), files: 8, class: 0 };
    assert_eq!(even_out(&members, &[album]).moves, [], "what moves as a whole counts with all its files");
}

#[test]
fn the_share_counts_and_not_the_bytes() {
    let plan = even_out(&[member(100, 80), member(1000, 300)], &units(0, &[1; 80]));
    assert_eq!(used(&plan), [39, 341], "39 % and 34.1 %");
}

/// Members, units, and where each class of them may be.
type World = (Vec<Member>, Vec<Unit>, Vec<Vec<usize>>);

fn worlds(most_of_unit: u64) -> impl Strategy<Value = World> {
    let member = (100u64..10_000, prop::collection::vec(1..=most_of_unit, 0..60), 0u64..2_000, 0u64..4);
    let members = prop::collection::vec(member, 2..6);
    let classes = prop::collection::vec(prop::collection::vec(any::<bool>(), 6), 1..4);
    (members, classes, prop::collection::vec(0usize..3, 300)).prop_map(|(members, classes, of)| {
        let classes: Vec<Vec<usize>> =
            classes.iter().map(|class| (0..members.len()).filter(|member| class[*member]).collect()).collect();
        let mut units = Vec::new();
        let mut all = Vec::new();
        for (on, (free, sizes, fixed, room)) in members.into_iter().enumerate() {
            for bytes in &sizes {
                let class = of[units.len()] % classes.len();
                units.push(Unit { on, bytes: ByteSize(*bytes), files: 1 + bytes % 3, class });
            }
            let used = sizes.iter().sum::<u64>() + fixed;
            let (total, room) = (ByteSize(used + free), ByteSize(free * room / 3));
            all.push(Member { total, used: ByteSize(used), room, files: free % 50 });
        }
        (all, units, classes)
    })
}

fn shares(members: &[Member]) -> Vec<Share> {
    members.iter().map(Member::share).collect()
}

fn least_and_most(members: &[Member]) -> (Share, Share) {
    let shares = shares(members);
    (shares.iter().copied().min().unwrap(), shares.iter().copied().max().unwrap())
}

proptest! {
    #[test]
    fn no_step_of_a_plan_makes_it_worse_and_none_breaks_a_rule((members, units, classes) in worlds(500), within in 0u32..20_000) {
        let question = BalanceRequest { members: &members, units: &units, classes: &classes, within };
        let plan = super::plan(&question);
        let mut now = members.clone();
        let mut moved = vec![false; units.len()];
        for next in &plan.moves {
            let unit = units[next.unit];
            prop_assert!(!std::mem::replace(&mut moved[next.unit], true), "a unit moves once");
            prop_assert!(next.to != unit.on && classes[unit.class].contains(&next.to));
            prop_assert!(now[next.to].room >= unit.bytes && now[next.to].files >= unit.files, "it has room");
            let (least, most) = least_and_most(&now);
            now[unit.on].used.0 -= unit.bytes.0;
            now[unit.on].files += unit.files;
            now[next.to].files -= unit.files;
            now[next.to].used.0 += unit.bytes.0;
            now[next.to].room.0 -= unit.bytes.0;
            let after = least_and_most(&now);
            prop_assert!(after.0 >= least && after.1 <= most, "{:?} became {:?}", (least, most), after);
        }
        let used: Vec<ByteSize> = now.iter().map(|member| member.used).collect();
        prop_assert_eq!(&plan.used, &used);
        prop_assert_eq!(super::plan(&question), plan, "the same question has the same answer");
    }

    #[test]
    fn units_that_may_be_anywhere_are_moved_with_few_bytes_more_than_must_be((mut members, mut units, _) in worlds(40), within in 1_000u32..20_000) {
        for member in &mut members {
            (member.room, member.files) = (ByteSize(member.total.0 - member.used.0), u64::MAX);
        }
        for unit in &mut units {
            unit.class = 0;
        }
        let anywhere = vec![(0..members.len()).collect()];
        let plan = super::plan(&BalanceRequest { members: &members, units: &units, classes: &anywhere, within });
        let bytes: u64 = plan.moves.iter().map(|next| units[next.unit].bytes.0).sum();
        let largest = units.iter().map(|unit| unit.bytes.0).max().unwrap_or(0);
        prop_assert!(bytes <= plan.least.0 + members.len() as u64 * largest, "{bytes} bytes for {}", plan.least);
        // A member that is still above the window has nothing left to give.
        let after: Vec<Member> = members.iter().zip(&plan.used).map(|(member, used)| Member { used: *used, ..*member }).collect();
        let (least, _) = least_and_most(&after);
        for (index, member) in after.iter().enumerate() {
            let is_far = member.share() > least + u64::from(within) * WHOLE / WHOLE_IN_MILLI_PERCENT;
            let left = (0..units.len()).filter(|unit| units[*unit].on == index && plan.moves.iter().all(|next| next.unit != *unit));
            let smallest = left.map(|unit| units[unit].bytes.0).min();
            let gap = after.iter().map(|other| other.below(member.share())).max().unwrap_or(0);
            prop_assert!(!is_far || smallest.is_none_or(|smallest| smallest + 1 >= gap.min(member.above(least))), "member {index} of {after:?}");
        }
    }
}
