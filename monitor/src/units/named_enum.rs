//! Enums whose variants have the names that configuration, metrics and logs use.

/// Declares an enum of plain variants, its `ALL`, in the order written, and its `as_str`.
macro_rules! named_enum {
    (
        $(#[$of_enum:meta])*
        pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident = $text:literal,)+ }
    ) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$of_variant])* $variant,)+ }

        impl $name {
            /// Every variant, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// Every variant with its name.
            pub const CHOICES: [(&'static str, Self); [$($text),+].len()] = [$(($text, Self::$variant)),+];

            /// Returns the name used in configuration, metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

pub(crate) use named_enum;
