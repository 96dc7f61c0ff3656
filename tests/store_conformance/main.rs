//! The conformance suite of [`delayd::store`]: each test is one sentence of the contract.
//!
//! Each sentence is an async fn over [`delayd::store::Store`]. It appears as `embedded::…`,
//! `redis::…`, `cluster::…` (Redis Cluster) and `specification::…`. The last runs it on the
//! specification in [`model`], so that tests and specification agree. [`machine`] drives both
//! stores with random calls against that specification. [`redis_alone`] tests what only Redis has:
//! its lock, its scripts, a registry that can be lost.
//!
//! All clocks are manual. Only the lane lock runs by Redis' own time.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, a panic is the report")]

mod add;
mod admin;
mod admin_bulk;
mod adoption;
mod audit;
mod bench;
mod cancel;
mod check;
mod check_embedded;
mod check_redis;
mod check_redis_keys;
mod check_redis_registry;
mod check_redis_schedules;
mod check_schedules;
mod claim;
mod contents;
mod counted;
mod damage;
mod destination;
mod expiry;
mod find;
mod idempotency;
mod key;
mod lease;
mod machine;
mod misfire;
mod model;
mod notes;
mod on_dead;
mod pause;
mod planner;
mod quota;
mod read;
mod record;
mod redis_alone;
mod redis_identity;
mod redis_lanes;
mod redis_late;
mod redis_repeats;
mod redis_replicas;
mod redis_scripts;
mod reference;
mod registry;
mod sampling;
mod schedules;
mod schedules_alone;
mod schedules_model;
mod schedules_moved;
mod settle;
mod steps;
mod swept;
mod topics;
mod transfer;
mod world;

#[path = "../support/poll.rs"]
mod poll;
#[path = "../support/redis_many.rs"]
mod redis_many;
#[path = "../support/redis.rs"]
mod redis_server;

/// The sentences, by verb. A sentence that is missing here is dead code, and the compiler says so.
macro_rules! conformance {
    ($how:ident $store:ident) => {
        $how! { $store
            add ids_grow_and_start_at_the_clock_times_a_million,
            add an_add_answers_the_due_moment_and_clamps_the_past,
            add content_and_options_are_kept_byte_for_byte,
            add a_batch_is_answered_in_order_and_stored_once,
            add an_id_names_the_lane_of_its_task,
            add tasks_spread_over_the_lanes_of_their_topic,
            add hints_name_the_earliest_moment_for_workers_and_for_consumers,
            add a_task_for_consumers_is_hinted_when_an_admin_verb_moves_it,
            add the_store_answers_with_its_own_now,

            claim nothing_is_claimed_before_its_due_millisecond,
            claim a_claim_takes_only_named_destinations_and_at_most_their_slots,
            claim a_claim_takes_the_earliest_first,
            claim a_leased_task_shows_what_its_caller_needs,
            claim each_claim_has_a_receipt_of_its_own,
            claim a_retried_task_keeps_its_first_due_moment_and_counts_its_attempts,
            claim a_blocked_destination_leaves_its_tasks_untouched,
            claim an_outlook_names_due_destinations_and_the_next_moment,
            claim an_outlook_begins_after_a_position,
            claim an_outlook_names_the_wanted_destinations_that_are_still_due,
            claim a_long_list_of_due_destinations_is_read_while_tasks_of_it_are_claimed,
            claim a_claim_stops_at_its_byte_limit_except_for_a_single_larger_body,
            claim bytes_in_hand_count_for_a_claim,
            claim a_thousand_due_tasks_go_in_one_claim,
            claim a_claim_takes_no_task_of_another_lane,
            claim claims_at_the_same_time_share_no_task,
            claim a_pull_ignores_the_lock,

            lease a_lease_keeps_everyone_else_out_until_its_last_millisecond,
            lease a_claim_with_no_wants_sweeps,
            lease a_swept_task_comes_before_tasks_due_later,
            lease a_claim_sweeps_a_bounded_number_of_leases,
            lease an_extension_moves_the_deadline_and_keeps_the_receipt,
            lease only_the_current_receipt_extends,
            lease an_expired_lease_nobody_took_may_settle_and_extend,
            lease a_superseded_holder_is_refused,
            lease a_made_up_receipt_moves_nothing,
            lease only_the_newest_receipts_are_remembered,
            lease only_a_crash_loop_of_expired_leases_kills_a_task,
            lease any_settle_resets_the_count_of_expiries,
            lease a_clock_set_back_a_little_ends_no_lease,
            lease a_deadline_further_away_than_any_lease_has_expired,
            lease next_due_finds_a_deadline_too_far_away_behind_another,
            lease an_expired_lease_counts_as_scheduled_for_every_admin_verb,
            lease an_admin_verb_counts_no_expiry,
            lease each_claim_sets_the_length_of_its_lease,
            lease a_lease_says_who_holds_it,
            lease a_last_outcome_is_only_a_text,

            settle delivered_counts_for_the_whole_revision_unless_cancelled,
            settle a_retry_is_the_holders_and_may_be_repeated_until_the_next_claim,
            settle a_retry_may_name_its_moment,
            settle a_death_is_the_holders_and_may_be_repeated,
            settle a_release_is_the_holders_and_gives_the_attempt_back,
            settle a_keep_is_the_holders_and_makes_the_lease_longer,
            settle a_task_that_is_kept_too_often_dies,
            settle a_finished_task_keeps_its_receipt_and_repeats_answer_done,
            settle late_success_counts_for_its_revision_only,
            settle an_outcome_is_kept_and_cut_between_characters,
            settle settles_are_answered_in_order_across_lanes,
            settle each_settle_of_a_batch_sees_those_before_it,
            settle a_task_that_its_holder_puts_back_is_hinted,

            idempotency a_repeated_add_answers_the_first_task_whatever_became_of_it,
            idempotency a_repeated_add_answers_when_its_task_is_due_now,
            idempotency an_idempotency_key_is_remembered_for_its_window_from_the_first_add,
            idempotency another_fingerprint_is_refused_and_stores_nothing,
            idempotency adds_at_once_with_one_idempotency_key_make_one_task,
            idempotency a_batch_may_repeat_itself,
            idempotency any_text_is_an_idempotency_key_of_its_own,
            idempotency an_idempotency_key_finds_its_lane,
            idempotency an_emptied_lane_forgets_its_idempotency_keys,
            idempotency an_idempotency_key_is_unique_within_topic_and_key,
            idempotency a_repeat_is_told_how_its_task_has_ended,

            key a_key_pushes_its_waiting_task_back,
            key a_push_back_begins_a_revision,
            key a_leased_task_of_the_key_is_not_retried_but_may_succeed,
            key an_add_fulfils_a_pending_cancel_of_its_key,
            key a_task_that_has_ended_releases_its_key,
            key a_replay_takes_no_key_back,
            key a_reschedule_keeps_the_key,
            key a_thousand_adds_of_one_key_make_one_task,
            key a_key_counts_within_its_batch,
            key a_key_finds_its_lane,
            key a_repeated_push_back_pushes_no_further,
            key a_push_back_is_hinted,
            key a_claim_and_a_push_back_at_the_same_time_agree,
            key a_task_that_is_forgotten_leaves_no_key,

            quota a_quota_is_exact_and_counts_waiting_and_leased_tasks,
            quota an_expired_lease_counts_once,
            quota a_quota_counts_within_a_batch,
            quota an_add_that_makes_no_task_needs_no_quota,
            quota an_add_over_its_quota_changes_nothing,
            quota a_dead_letter_callback_needs_no_quota_but_counts,
            quota each_lane_has_a_quota_of_its_own,

            cancel a_scheduled_task_is_cancelled_at_once_and_never_fires,
            cancel a_task_that_left_its_state_is_not_cancelled,
            cancel a_task_that_changed_since_it_was_selected_is_left_alone,
            cancel a_retrying_task_is_cancelled_at_once_and_its_receipts_are_forgotten,
            cancel a_dead_task_can_be_cancelled_but_no_other_that_ended,
            cancel any_end_of_the_lease_but_success_fulfils_a_pending_cancel,
            cancel success_overtakes_a_pending_cancel,
            cancel a_sweep_fulfils_a_pending_cancel,
            cancel a_pending_cancel_outlives_an_extension_and_a_reschedule,

            admin a_reschedule_moves_the_due_moment,
            admin a_reschedule_may_change_content_and_destination,
            admin a_reschedule_can_insist_on_the_mode,
            admin reschedule_and_replay_forget_receipts_and_attempts,
            admin only_a_scheduled_task_is_rescheduled,
            admin a_replay_schedules_dead_tasks_now_and_counts_them,
            admin a_purge_removes_the_oldest_ended_tasks_first,
            admin an_excess_of_the_history_is_purged_once,
            admin a_purge_of_many_is_exact,

            expiry a_task_is_handed_out_until_its_expiry,
            expiry a_claim_ends_expired_tasks_of_every_destination,
            expiry a_leased_task_may_succeed_after_it_would_have_expired,
            expiry a_task_that_comes_back_too_late_expires,
            expiry the_next_moment_includes_expiries,
            expiry a_retry_does_not_move_the_expiry_but_a_reschedule_does,
            expiry a_push_back_moves_the_expiry,
            expiry a_replay_moves_the_expiry,
            expiry a_claim_ends_a_bounded_number_of_expired_tasks,

            misfire tasks_due_in_a_pause_become_what_the_resume_says,
            misfire a_misfire_takes_no_slot,
            misfire a_misfire_of_a_blocked_destination_is_left_alone,
            misfire a_retry_due_in_a_pause_misfires,
            misfire an_expired_misfire_keeps_no_receipt,
            misfire several_pauses_count_separately,
            misfire a_task_that_is_not_due_does_not_misfire,
            misfire an_expired_task_does_not_misfire,
            misfire a_claim_ends_a_bounded_number_of_misfires,
            misfire a_lease_that_expired_in_a_pause_misfires,

            swept a_claim_says_which_leases_ran_out,
            swept a_claim_says_which_tasks_it_ended,
            swept a_claim_says_which_tasks_end_with_their_leases,

            notes notes_are_kept_as_they_were_written,
            notes the_newest_notes_are_kept,
            notes a_note_is_cut_between_characters,
            notes notes_of_removed_tasks_are_skipped,
            notes notes_outlast_the_admin_verbs,
            notes removing_a_task_removes_its_notes,

            on_dead a_settled_death_makes_the_call_in_the_same_step,
            on_dead a_task_that_dies_by_a_sweep_makes_its_call,
            on_dead a_task_that_dies_by_a_misfire_makes_its_call,
            on_dead a_task_that_dies_again_makes_no_second_call,
            on_dead a_repeated_death_makes_no_second_call,
            on_dead a_task_that_did_not_die_makes_no_call,
            on_dead a_late_success_does_not_cancel_the_call,
            on_dead a_push_back_keeps_the_id_of_the_call,
            on_dead a_call_is_in_the_lane_of_its_dead_task,
            on_dead each_dead_task_has_its_own_call,

            pause a_policy_is_kept_as_it_was_set,
            pause a_pause_lasts_until_it_is_ended,
            pause the_newest_pauses_are_remembered_with_what_their_tasks_become,
            pause a_pause_that_is_forgotten_leaves_the_others,
            pause only_tasks_due_in_a_pause_are_not_delivered_after_it,
            pause a_topic_is_unregistered_only_while_it_holds_nothing,
            pause an_unregistered_topic_loses_its_settings,

            admin_bulk summaries_say_what_get_says_without_the_body,
            admin_bulk a_replay_spreads_dead_tasks_out,
            admin_bulk dead_tasks_of_another_outcome_are_left_alone,
            admin_bulk a_discard_removes_only_tasks_of_the_named_state,
            admin_bulk a_clear_leaves_only_leased_tasks,
            admin_bulk a_leased_task_that_was_cleared_ends_with_its_lease,
            admin_bulk a_clear_marks_all_of_many_leased_tasks,
            admin_bulk a_clear_of_many_is_exact,
            admin_bulk a_forecast_counts_the_tasks_due_in_each_step,
            admin_bulk the_earliest_due_moment_of_a_lane_is_known,

            transfer a_lent_task_is_not_handed_out_and_not_early_afterwards,
            transfer a_lent_task_does_not_fire_while_it_is_due,
            transfer a_moved_task_has_ended,
            transfer a_retrying_task_comes_back_as_it_was,
            transfer a_success_of_the_mover_counts_after_its_lease,
            transfer only_waiting_and_lent_tasks_are_lent,
            transfer a_lent_task_may_be_cancelled_and_is_then_not_moved,
            transfer a_lent_task_counts_no_expiry,
            transfer a_lent_task_expires_once_it_is_back,
            contents only_delivered_cancelled_and_expired_tasks_lose_their_contents,
            contents a_dead_task_is_replayed_with_its_content,
            contents a_repeated_add_finds_a_task_without_content,
            contents a_task_without_content_is_recognized,
            contents the_janitor_removes_contents_after_a_while,

            adoption an_adopted_task_is_as_it_was,
            adoption an_adopted_task_fires_at_its_moment_and_not_before,
            adoption an_adoption_may_be_repeated_whatever_became_of_the_task,
            adoption another_task_of_the_same_id_is_left_alone,
            adoption a_store_does_not_adopt_what_it_lends,
            adoption an_adopted_id_is_never_drawn,
            adoption an_ended_task_is_adopted_as_ended,
            adoption an_adopted_task_takes_its_key_if_it_is_free,
            adoption of_two_tasks_of_a_key_the_later_one_is_kept,
            adoption an_ended_owner_of_the_key_supersedes_older_tasks,
            adoption an_end_elsewhere_ends_the_task_here_unless_it_was_changed,
            adoption an_end_elsewhere_cancels_a_leased_task_when_its_lease_ends,
            transfer a_late_success_ends_a_lent_task_and_the_mover_hears_of_it,
            transfer a_task_remembers_when_its_key_was_set,
            adoption an_adoption_registers_its_topic_and_asks_for_no_quota,
            transfer a_move_keeps_every_field,
            transfer a_moved_task_keeps_its_origin,
            transfer a_call_for_a_moved_task_has_its_origin,
            adoption tasks_of_two_stores_with_one_id_are_distinguished,
            adoption an_id_that_another_topic_has_is_taken,
            adoption an_id_that_another_import_brought_to_another_topic_is_taken,
            adoption a_batch_takes_an_id_once,
            adoption the_id_of_a_call_for_a_moved_task_is_never_drawn,

            read pages_follow_one_another_in_time_order,
            read pages_follow_one_another_back_in_time,
            read a_list_is_bounded_by_from_and_to,
            read each_state_is_listed_by_its_own_moment,
            read counts_are_exact_after_every_verb,
            read next_due_knows_every_lane_and_leaves_pulled_tasks_out,
            read next_due_includes_the_earliest_lease_deadline,
            read next_pull_knows_only_tasks_for_consumers,
            read a_poll_gives_the_answers_of_the_verbs,
            find a_task_is_found_by_its_id_among_the_lanes_of_all_topics,
            find a_task_is_found_by_its_key,
            find a_task_is_found_by_its_idempotency_key_until_its_window_ends,
            find a_change_by_key_does_not_touch_a_task_that_the_key_has_left,
            find a_change_by_idempotency_key_ends_with_its_window,

            read reads_of_unknown_names_are_empty,
            read a_store_keeps_its_id,

            destination a_hold_lasts_until_it_is_released,
            destination waiting_tasks_are_counted_by_destination_over_all_lanes,

            sampling a_sample_counts_lanes_by_state_and_by_destination,
            sampling a_sample_names_the_earliest_destinations,
            sampling a_sample_of_nothing_is_empty,

            check an_empty_store_is_in_order,
            check every_state_is_in_order_and_a_repair_changes_nothing,
            check a_check_pages_through_many_tasks_and_lanes,
            check traffic_never_looks_like_a_flaw,

            audit entries_are_listed_as_they_were_recorded_the_newest_first,
            audit a_page_continues_after_its_cursor_whatever_was_recorded_since,
            audit the_oldest_entries_are_removed_beyond_the_cap,
            audit an_audit_log_contradicts_nothing,

            schedules a_schedule_is_kept_as_it_was_set,
            schedules an_equal_set_changes_nothing,
            schedules schedules_are_listed_by_name,
            schedules an_occurrence_is_an_ordinary_task_that_names_its_schedule,
            schedules of_two_planners_one_adds,
            schedules an_old_plan_adds_nothing,
            schedules one_occurrence_waits_at_most_and_counts_what_it_stands_for,
            schedules an_occurrence_that_ended_or_is_gone_makes_room,
            schedules a_change_removes_only_what_was_never_handed_out,
            schedules a_change_loses_no_moment_that_has_passed,
            schedules a_pause_passes_over_its_moments_and_a_move_over_none,
            schedules an_occurrence_is_skipped_while_an_earlier_one_runs,
            schedules an_overlap_is_judged_when_the_occurrence_falls_due,
            schedules a_lent_occurrence_was_not_handed_out,
            schedules due_schedules_are_named_the_earliest_first,
            schedules a_schedule_remembers_its_newest_occurrences,
            schedules a_schedule_of_another_store_continues,
            schedules a_topic_with_schedules_is_not_unregistered,
            schedules a_late_success_frees_the_next_occurrence,
            schedules only_topics_with_schedules_are_said_to_have_some,

            schedules_moved a_moved_schedule_is_stored_once,
            schedules_moved a_moved_schedule_never_replaces_another,
            schedules_moved a_moved_schedule_replaces_its_own_older_copy,
            schedules_moved a_schedule_that_returns_is_the_stores_own,
            schedules_moved a_held_schedule_is_forgotten_unless_it_was_changed,
            schedules_moved a_schedule_shows_where_it_was_before_its_last_plan,
            schedules_moved an_occurrence_that_was_moved_makes_room,
            schedules_moved a_lane_tells_whether_it_has_schedules,
            schedules_moved every_state_of_a_schedule_is_in_order,
            schedules_moved an_occurrence_that_was_given_back_is_withdrawn_with_the_next_one,

            planner a_change_loses_no_moment_that_nobody_has_planned,
            planner planners_that_race_plan_each_moment_once,
            planner unreadable_schedules_hold_up_no_others,
            planner a_backlog_needs_no_poll_for_each_moment,

            registry the_first_registration_wins,
            registry a_token_creates_no_more_topics_than_it_may,
            registry an_add_into_an_empty_lane_registers_its_topic,
            registry a_recovery_finds_nothing_where_all_is_registered,
            registry an_add_by_an_old_number_of_lanes_stores_nothing,
            registry an_adoption_by_an_old_number_of_lanes_keeps_nothing,
        }
    };
}

/// A test for each sentence.
macro_rules! each_by_itself {
    ($store:ident $($verb:ident $sentence:ident,)+) => {
        $(#[tokio::test]
        async fn $sentence() {
            crate::$verb::$sentence(crate::bench::$store().await).await;
        })+
    };
}

mod embedded {
    conformance!(each_by_itself embedded);
    each_by_itself!(embedded transfer a_hint_follows_the_return_of_a_lent_task,);
}

mod redis {
    conformance!(each_by_itself redis);
    each_by_itself!(redis transfer a_hint_follows_the_return_of_a_lent_task,);
}

/// Redis again, over three primaries.
mod cluster {
    conformance!(each_by_itself cluster);
}

/// The specification, tested with its own sentences.
mod specification {
    conformance!(each_by_itself model);
}
