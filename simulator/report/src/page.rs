//! Pages put together by hand. Tools that build a [`crate::Report`] do not need this module; it goes when the demo has moved.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::palette::css;

/// The style of every report.
pub const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.05rem; margin: 0; }
.verdict { font-size: 1.15rem; background: #eef5fa; border-left: 4px solid #0072b2; padding: .7rem 1rem; }
.key span { display: inline-block; margin-right: 1.4rem; }
.key i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; vertical-align: -.05em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid #ddd; border-radius: 6px; padding: .8rem; }
figcaption { color: #555; font-size: .9rem; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: 1.5rem 0; font-size: .92rem; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid #e3e3e3; }
th:first-child, td:first-child { text-align: left; }
.failed { color: #b00020; font-weight: 600; }
ul.verdicts { list-style: none; padding: 0; }
ul.verdicts li { padding: .35rem 1rem; margin: .3rem 0; border-left: 4px solid #009e73; background: #eef7f3; }
ul.verdicts li.not { border-color: #b00020; background: #fbeef0; }
section { margin-top: 2.2rem; }
footer { color: #666; font-size: .88rem; }
";

/// A whole page; `more_style` comes behind the common style.
#[must_use]
pub fn page(title: &str, more_style: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(more_style)) }
            }
            body { (body) }
        }
    }
    .into_string()
}

/// A chart with its title above and its explanation below.
#[must_use]
pub fn figure(title: &str, explanation: &str, svg: &str) -> Markup {
    html! { figure { h2 { (title) } (PreEscaped(svg)) figcaption { (explanation) } } }
}

/// What stands before a claim that holds, or does not; nothing before one that only says what is.
#[must_use]
pub const fn mark(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "Holds: ",
        Some(false) => "Does not hold: ",
        None => "",
    }
}

/// Claims, and whether they hold.
#[must_use]
pub fn verdicts<'a>(claims: impl IntoIterator<Item = (Option<bool>, &'a str)>) -> Markup {
    html! {
        ul.verdicts { @for (holds, claim) in claims {
            li.not[holds == Some(false)] { strong { (mark(holds)) } (claim) }
        } }
    }
}

/// Which colour is what.
#[must_use]
pub fn key<'a>(names: impl IntoIterator<Item = &'a str>) -> Markup {
    html! {
        p.key { @for (index, name) in names.into_iter().enumerate() {
            span { i style={ "background:" (css(index)) } {} (name) }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_else_and_escapes_what_it_is_given() {
        let claims = verdicts([(Some(false), "x > y"), (None, "z")]);
        let body = html! { (key(["a<b", "c"])) (figure("t", "e", "<svg/>")) (claims) };
        let page = page("x & y", "b { }", &body);
        assert!(page.contains("<title>x &amp; y</title>") && page.contains("a&lt;b"));
        assert!(page.contains("<svg/>") && page.contains("b { }"));
        assert!(page.contains(r#"<li class="not"><strong>Does not hold: </strong>x &gt; y</li>"#));
        assert!(page.contains("<strong></strong>z</li>"));
        assert_eq!(page.matches(r#"class="not""#).count(), 1);
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}
