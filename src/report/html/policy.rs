//! What the page may do, said in its first lines: run its own script and wear its own style, both known by their hashes, and nothing
//! else. No network, no image, no form, no other script, whatever stands in its data.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

/// The policy of a page with one style, of this text, and no script.
pub fn policy_of_style(style: &str) -> String {
    format!("default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'", hash(style))
}

/// The policy of a template: the value of a `Content-Security-Policy` for its one style and its one script.
pub(super) fn policy(template: &str) -> String {
    let hash = |begin, end| hash(between(template, begin, end));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash("<script>", "</script>"),
        hash("<style>", "</style>")
    )
}

fn hash(text: &str) -> String {
    STANDARD.encode(digest(&SHA256, text.as_bytes()))
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).map_or("", |(_, rest)| rest);
    rest.split_once(end).map_or("", |(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_a_browser_makes() {
        // The empty text's, and that of "abc", as FIPS 180-4 has them.
        let said = policy("<script></script><style>abc</style>");
        assert!(said.contains("script-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"), "{said}");
        assert!(said.contains("style-src 'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='"), "{said}");
    }

    #[test]
    fn the_policy_allows_what_the_template_has_and_nothing_else() {
        let template = super::super::TEMPLATE;
        let policy = policy(template);
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("47DEQpj8HBSa"), "an empty one: {policy}");
        assert_eq!(template.matches("<script>").count(), 1, "one script");
        assert_eq!(template.matches("<style>").count(), 1, "one style");
        for forbidden in [
            " style=",
            " onclick=",
            " onload=",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http://",
            "https://",
        ] {
            assert!(
                !template.contains(forbidden),
                "{forbidden}: it does not work under the policy, or must not"
            );
        }
    }
}
