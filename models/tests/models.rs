//! Every model in every order that its bound allows.

use muster_models::models::{
    bell, board, check, directory, doorbell, epoch, memory, ring, slot, tap, tree,
};

#[test]
fn two_ranks_exchange_entries() {
    check(4, || slot::entries_are_exchanged(3));
}

#[test]
fn a_root_and_a_leaf_meet() {
    check(3, || tree::a_root_and_a_leaf_meet(2));
}

#[test]
fn the_root_sees_a_leaf_that_it_does_not_look_at() {
    for odd in [None, Some(3)] {
        check(3, move || {
            tree::the_root_sees_a_leaf_that_it_does_not_look_at(odd);
        });
    }
}

#[test]
fn a_destroyed_group_is_noticed() {
    for is_reused_as_data in [false, true] {
        check(4, move || {
            slot::a_destroyed_group_is_noticed(is_reused_as_data);
        });
    }
}

#[test]
fn who_begins_or_who_revokes_notices() {
    check(4, slot::who_begins_or_who_revokes_notices);
}

#[test]
fn who_sees_a_key_sees_its_block() {
    check(4, directory::who_sees_a_key_sees_its_block);
}

#[test]
fn threads_of_an_owner_take_places_of_their_own() {
    check(3, directory::threads_of_an_owner_take_places_of_their_own);
}

#[test]
fn nobody_sleeps_for_ever() {
    check(4, || bell::nobody_sleeps_for_ever(1, 2, true));
    check(2, || bell::nobody_sleeps_for_ever(2, 2, true));
}

/// What BELL-1 says is left out for speed: the model sees it.
#[test]
#[should_panic(expected = "deadlock")]
fn without_a_fence_a_wake_up_may_be_missed() {
    check(4, || bell::nobody_sleeps_for_ever(1, 1, false));
}

#[test]
fn threads_that_sleep_at_a_doorbell_are_woken() {
    check(4, || doorbell::threads_of_a_rank_are_woken(1, 2));
    check(2, || doorbell::threads_of_a_rank_are_woken(2, 2));
}

#[test]
fn a_rank_is_woken_by_each_of_its_peers() {
    check(3, || doorbell::a_rank_is_woken_by_each_of_its_peers(1));
    check(2, || doorbell::a_rank_is_woken_by_each_of_its_peers(2));
}

#[test]
fn who_waits_for_room_or_for_units_of_a_ring_is_woken() {
    check(3, || doorbell::who_waits_for_room_or_for_units_is_woken(4));
}

#[test]
fn units_of_a_ring_come_in_order_up_to_the_last_one() {
    check(3, || ring::units_come_in_order_up_to_the_last_one(3));
}

#[test]
fn a_message_is_found_or_known_to_be_lost() {
    check(4, ring::a_message_is_found_or_known_to_be_lost);
}

#[test]
fn a_line_is_read_whole_or_not_at_all() {
    check(4, || board::a_line_is_read_whole_or_not_at_all(2));
}

#[test]
fn a_record_belongs_to_the_call_that_its_version_names() {
    check(3, || {
        board::a_record_belongs_to_the_call_that_its_version_names(2);
    });
}

#[test]
fn a_line_that_the_system_copies_is_whole_or_not() {
    check(3, || {
        board::a_line_that_the_system_copies_is_whole_or_not(2, true);
    });
}

/// Why a third copy is made (PUBLISH-3).
#[test]
#[should_panic(expected = "a torn line")]
fn two_copies_of_the_system_may_be_torn() {
    check(3, || {
        board::a_line_that_the_system_copies_is_whole_or_not(2, false);
    });
}

#[test]
fn a_wait_ends_with_the_part_or_with_the_news() {
    for has_done_its_part in [false, true] {
        check(4, move || {
            epoch::a_wait_ends_with_the_part_or_with_the_news(has_done_its_part);
        });
    }
}

#[test]
fn a_wait_ends_with_what_is_published() {
    check(4, epoch::a_wait_ends_with_what_is_published);
}

#[test]
fn who_sleeps_for_news_gets_them() {
    check(4, || epoch::who_sleeps_for_news_gets_them(2));
}

#[test]
fn buffers_are_reached_within_a_call_only() {
    check(3, || memory::buffers_are_reached_within_a_call_only(2));
}

#[test]
fn staging_is_used_again_when_it_was_read() {
    check(3, || memory::staging_is_used_again_when_it_was_read(3));
}

#[test]
fn a_revoked_buffer_is_its_owners() {
    check(4, memory::a_revoked_buffer_is_its_owners);
}

#[test]
fn memory_of_a_group_is_used_again_when_nobody_reads_it() {
    check(
        4,
        memory::memory_of_a_group_is_used_again_when_nobody_reads_it,
    );
}

#[test]
fn a_spare_buffer_has_one_user() {
    check(4, memory::a_spare_buffer_has_one_user);
}

#[test]
fn memory_of_a_ring_is_used_again_when_both_have_left() {
    for is_written in [false, true] {
        check(4, move || {
            ring::memory_of_a_ring_is_used_again_when_both_have_left(is_written);
        });
    }
}

#[test]
fn a_call_of_the_tap_is_read_whole_or_not_at_all() {
    check(4, || tap::a_call_is_read_whole_or_not_at_all(2));
}

#[test]
fn a_slot_of_the_tap_is_read_as_one_communicators() {
    check(4, tap::a_slot_is_read_as_one_communicators);
}
