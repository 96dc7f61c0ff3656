//! How requests are declared. A field that several requests have is written here, once.
//!
//! `serde(flatten)` cannot serve for this. It copies every field of the request before it reads
//! one, which costs time in each add, and loses the path of an error. A `RawValue` cannot be read
//! from such a copy. And with `deny_unknown_fields` the error no longer names the known fields.

/// Declares requests: structs of optional fields, which refuse unknown ones, and leave out absent
/// ones when they are written. `#[schema(…)]` counts only with the feature `schema`.
///
/// A line `..group,` stands for the fields of a group. A group uses the type parameters of the
/// request by name.
macro_rules! requests {
    ($(
        $(#[$($attribute:tt)*])*
        pub struct $name:ident $(<$($type:ident),+ $(,)?>)? { $($fields:tt)* }
    )+) => {
        $(request! { ($(#[$($attribute)*])* pub struct $name $(<$($type),+>)?) () $($fields)* })+
    };
}

/// One request: its head, the fields that are expanded, and those that are not yet.
macro_rules! request {
    (($($head:tt)*) ($($field:tt)*)) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
        #[serde(deny_unknown_fields)]
        $($head)* { $($field)* }
    };
    ($head:tt $done:tt ..topic, $($rest:tt)*) => {
        request! { $head $done
            /// The topic.
            #[schema(value_type = TopicName, required = true)]
            pub topic: Option<Topic>,
            $($rest)*
        }
    };
    // Names a task. The comment is that of `key`.
    ($head:tt $done:tt $(#[doc = $key:tt])+ ..task_name, $($rest:tt)*) => {
        request! { $head $done
            /// The task's id; give this, `key` or `idempotency_key`.
            #[schema(value_type = Option<TaskIdGiven>)]
            pub task_id: Option<TaskId>,
            $(#[doc = $key])+
            #[schema(min_length = 1, max_length = 256)]
            pub key: Option<String>,
            /// The task's idempotency key, until its window ends; with `key`, if the task has one.
            #[schema(min_length = 1, max_length = 256)]
            pub idempotency_key: Option<String>,
            $($rest)*
        }
    };
    // Names a leased task. The comment is that of `receipt`.
    ($head:tt $done:tt $(#[doc = $receipt:tt])+ ..leased_task, $($rest:tt)*) => {
        request! { $head $done
            ..topic,
            /// The task.
            #[schema(value_type = TaskIdGiven, required = true)]
            pub task_id: Option<TaskId>,
            $(#[doc = $receipt])+
            #[schema(value_type = ReceiptText, required = true)]
            pub receipt: Option<Receipt>,
            $($rest)*
        }
    };
    // A time as text. The comment is that of `at`.
    ($head:tt $done:tt $(#[doc = $at:tt])+ ..written_time, $($rest:tt)*) => {
        request! { $head $done
            $(#[doc = $at])+
            #[schema(max_length = 128, example = "2026-11-23T20:00:00+08:00")]
            pub at: Option<String>,
            #[doc = "The time zone of `at`: a name such as `Asia/Shanghai`, or an offset such as \
                     `+08:00`."]
            #[schema(max_length = 64, example = "Asia/Shanghai")]
            pub zone: Option<String>,
            $($rest)*
        }
    };
    // The options of a task. The texts describe `max_attempts`, `expires_after` and `on_dead`.
    ($head:tt $done:tt ..options($attempts:tt, $expires:tt, $on_dead:tt), $($rest:tt)*) => {
        request! { $head $done
            /// `push`, `pull`, or `auto`, which decides by the content.
            #[schema(value_type = Option<Mode>)]
            pub mode: Option<ModeWord>,
            #[doc = $attempts]
            #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
            pub max_attempts: Option<Number>,
            /// The timeout of one callback: 100 ms to 10 min.
            #[schema(value_type = Option<SpanText>)]
            pub timeout: Option<Span>,
            /// The wait between attempts.
            #[schema(value_type = Option<Backoff>)]
            pub backoff: Option<Wait>,
            /// Additional headers of the callback.
            #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
            pub headers: Option<Headers>,
            #[doc = $expires]
            #[schema(value_type = Option<SpanText>)]
            pub expires_after: Option<Span>,
            #[doc = $on_dead]
            #[schema(value_type = Option<AnyOnDead>)]
            pub on_dead: Option<OnDead>,
            $($rest)*
        }
    };
    // The comment is that of `limit`.
    ($head:tt $done:tt $(#[doc = $limit:tt])+ ..page, $($rest:tt)*) => {
        request! { $head $done
            $(#[doc = $limit])+
            #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
            pub limit: Option<Number>,
            /// The cursor of the previous page.
            #[schema(value_type = Option<PageCursor>)]
            pub cursor: Option<Cursor>,
            $($rest)*
        }
    };
    // Selects tasks of a topic.
    ($head:tt $done:tt ..selection, $($rest:tt)*) => {
        request! { $head $done
            /// These tasks, in place of a filter: 1 to 1,000 ids.
            #[schema(value_type = Option<Vec<TaskIdGiven>>)]
            pub task_ids: Option<Ids>,
            /// All tasks of the state; otherwise a filter or ids are required.
            pub all: Option<bool>,
            /// Only tasks for this service or host; `@pull`: only pulled tasks.
            #[schema(value_type = Option<ServiceName>)]
            pub sn: Option<Service>,
            /// Only tasks whose last outcome is exactly this text.
            pub outcome: Option<String>,
            /// Only tasks that are due at or after this time, in Unix seconds.
            #[schema(value_type = Option<f64>)]
            pub due_from: Option<Number>,
            /// Only tasks that are due at or before this time, in Unix seconds.
            #[schema(value_type = Option<f64>)]
            pub due_to: Option<Number>,
            /// Only counts, and shows some of the tasks.
            pub dry_run: Option<bool>,
            #[doc = "The most tasks to look at, including those that the filter excludes (default \
                     10,000)."]
            #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
            pub limit: Option<Number>,
            /// The cursor of the previous call.
            #[schema(value_type = Option<PageCursor>)]
            pub cursor: Option<Cursor>,
            $($rest)*
        }
    };
    // Selects dead tasks of a topic.
    ($head:tt $done:tt ..dead_tasks, $($rest:tt)*) => {
        request! { $head $done
            /// The tasks' ids; give this or `all`.
            #[schema(value_type = Option<Vec<TaskIdGiven>>)]
            pub task_ids: Option<TaskIds>,
            /// All dead tasks of the topic.
            pub all: Option<bool>,
            /// Only tasks whose last outcome is exactly this text.
            pub reason: Option<String>,
            /// Only counts.
            pub dry_run: Option<bool>,
            /// The most tasks to look at, including those that `reason` excludes (default 100,000).
            #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
            pub limit: Option<Number>,
            /// The cursor of the previous call: continues after the tasks that it looked at.
            #[schema(value_type = Option<DeadCursor>)]
            pub cursor: Option<Cursor>,
            $($rest)*
        }
    };
    ($head:tt $done:tt ..schedule, $($rest:tt)*) => {
        request! { $head $done
            ..topic,
            /// The schedule.
            #[schema(value_type = String, required = true)]
            pub schedule: Option<Name>,
            $($rest)*
        }
    };
    // When a schedule fires. The texts describe `every` and `start`.
    ($head:tt $done:tt ..moments($every:tt, $start:tt), $($rest:tt)*) => {
        request! { $head $done
            #[doc = "A cron expression with five fields (minute, hour, day of month, month, \
                     weekday), or with six\n(second first). Give this or `every`."]
            #[schema(min_length = 1, max_length = 256)]
            pub cron: Option<String>,
            #[doc = $every]
            #[schema(value_type = Option<SpanText>)]
            pub every: Option<Span>,
            /// The time zone in which `cron` and local times are meant (default `UTC`).
            pub zone: Option<String>,
            #[doc = $start]
            pub start: Option<String>,
            /// No moment lies after this time, written as `start`.
            pub end: Option<String>,
            $($rest)*
        }
    };
    // Names tasks of a topic that are moved.
    ($head:tt $done:tt ..moved_tasks, $($rest:tt)*) => {
        request! { $head $done
            ..topic,
            /// The tasks' ids.
            #[schema(
                value_type = Vec<TaskIdGiven>, min_items = 1, max_items = 1000, required = true
            )]
            pub task_ids: Option<TaskIds>,
            $($rest)*
        }
    };
    (
        $head:tt ($($done:tt)*)
        $(#[doc = $text:tt])* $(#[schema($($schema:tt)*)])? $(#[serde($($serde:tt)*)])?
        pub $field:ident: Option<$type:ident>, $($rest:tt)*
    ) => {
        request! { $head
            (
                $($done)*
                $(#[doc = $text])*
                #[serde($($($serde)*,)? skip_serializing_if = "Option::is_none")]
                $(#[cfg_attr(feature = "schema", schema($($schema)*))])?
                pub $field: Option<$type>,
            )
            $($rest)*
        }
    };
}
