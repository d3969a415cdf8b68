use super::*;

const NOW: Duration = Duration::from_secs(5);

// DRR-1
#[test]
fn those_who_want_share_by_bytes_whoever_asks_more_often() {
    let costs = [1_000_u64, 64 << 10, 256];
    let mut rivals = Rivals::default();
    let mut taken = [0_u64; 3];
    (0..3).for_each(|who| rivals.refused(who, NOW));
    for round in 0..60_000_usize {
        // The first asks five times as often as the others.
        let who = if round % 7 < 5 { 0 } else { round % 7 - 4 };
        if rivals.may(who, NOW) {
            taken[who] += costs[who];
            rivals.took(who, costs[who], NOW);
        } else {
            rivals.refused(who, NOW);
        }
    }
    let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
    assert!(most - least <= 3 * (64 << 10), "{taken:?}");
}

// DRR-3
#[test]
fn nobody_waits_for_one_that_does_not_come() {
    let mut rivals = Rivals::default();
    rivals.refused(1, NOW);
    rivals.refused(2, NOW);
    assert!(rivals.may(1, NOW));
    assert!(rivals.took(1, 1 << 20, NOW), "its credit is used up");
    assert!(!rivals.may(1, NOW), "it is the other's turn");
    rivals.refused(1, NOW + PATIENCE / 2);
    assert!(rivals.may(1, NOW + PATIENCE), "which has not come");
    assert!(!rivals.took(1, 1 << 20, NOW + PATIENCE), "and there is nobody else");
    // One that leaves is not waited for either.
    rivals.refused(1, NOW);
    rivals.refused(2, NOW);
    rivals.took(1, 1 << 20, NOW);
    rivals.leave(2);
    assert!(rivals.may(1, NOW));
}
