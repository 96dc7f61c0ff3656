//! Names as values of labels.

use std::hash::Hash;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// A family of counters with these labels and no others, and the counters in the same order.
pub(super) fn resolved<L: Clone + Eq + Hash>(labels: &[L]) -> (Family<L, Counter>, Vec<Counter>) {
    let family = Family::default();
    let counters = labels.iter().map(|labels| family.get_or_create_owned(labels)).collect();
    (family, counters)
}

/// An enum without data whose variants have the names that a label shows. All of them are known in
/// advance, so that each series can exist from the start.
macro_rules! label_value {
    (
        $(#[$meta:meta])* $vis:vis $name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            pub(super) const ALL: &[Self] = &[$(Self::$variant),+];

            /// The text of the label.
            $vis fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl prometheus_client::encoding::EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> std::fmt::Result {
                std::fmt::Write::write_str(encoder, self.as_str())
            }
        }
    };
}

pub(super) use label_value;
