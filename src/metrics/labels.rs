//! Names as values of labels.

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
        }

        impl prometheus_client::encoding::EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> std::fmt::Result {
                let text = match self {
                    $(Self::$variant => $text,)+
                };
                std::fmt::Write::write_str(encoder, text)
            }
        }
    };
}

pub(super) use label_value;
