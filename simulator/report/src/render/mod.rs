//! A [`crate::Report`] in each format.

pub(crate) mod html;
pub(crate) mod page;
pub(crate) mod text;
mod verdicts;
