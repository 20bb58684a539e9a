//! Constants that an experiment may change.
//!
//! A chosen number is declared by [`constants!`] and read by `get()`. In the service it is a plain number. The experiment `ablate`
//! (feature `research`) multiplies one after the other and reports what each of them is worth.

#[cfg(feature = "research")]
mod change;

#[cfg(feature = "research")]
pub use change::{constants_read, scale_constant};

/// A number that was chosen by experiments.
#[derive(Debug)]
pub(crate) struct Constant<T> {
    value: T,
    #[cfg(feature = "research")]
    change: change::Change,
}

/// Declares constants that an experiment may change.
macro_rules! constants {
    ($($(#[$doc:meta])* $visibility:vis $name:ident: $type:ty = $value:expr;)*) => {$(
        $(#[$doc])*
        $visibility static $name: $crate::constant::Constant<$type> =
            $crate::constant::Constant::new($value, concat!(module_path!(), "::", stringify!($name)));
    )*};
}
pub(crate) use constants;

#[cfg(not(feature = "research"))]
impl<T: Copy> Constant<T> {
    pub(crate) const fn new(value: T, _name: &'static str) -> Self {
        Self { value }
    }

    #[inline]
    pub(crate) const fn get(&self) -> T {
        self.value
    }
}

#[cfg(feature = "research")]
impl<T: change::Scale> Constant<T> {
    pub(crate) const fn new(value: T, name: &'static str) -> Self {
        let change = change::Change::new(name);
        Self { value, change }
    }

    /// The number, multiplied as [`scale_constant`] said.
    pub(crate) fn get(&'static self) -> T {
        self.value.scaled(self.change.factor())
    }
}
