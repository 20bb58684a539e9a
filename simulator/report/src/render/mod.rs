//! A [`crate::Report`] in each format.

pub(crate) mod html;
pub(crate) mod text;
