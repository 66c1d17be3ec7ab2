//! A statement of the job's own source without its names: what anybody may write in Python stays.

use super::Share;
use super::fold::Fold;
use strandline::event::WordList;
use strandline::report::{KeptAt, Known};

/// Words of Python, and methods and functions of its containers and of PyTorch's tensors.
const PUBLIC: WordList = WordList(
    "and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or \
     pass raise return try while with yield True False None self cls \
     append appendleft add extend insert put put_nowait push update setdefault register_hook register_forward_hook \
     register_full_backward_hook create_task submit Thread Process args kwargs target list dict set tuple deque defaultdict zip range len sum \
     torch device dtype dim cat stack tensor zeros ones empty rand randn detach clone item cpu cuda to float half mean",
);

impl Share {
    /// What is known of who keeps a finding's blocks, of the job as it is, for one that is folded.
    pub(crate) fn kept(&self, known: &Known, cwd: &str) -> Known {
        let mut fold = self.fold();
        let kept_at = known.kept_at.as_ref().map(|kept| fold.kept_at(kept, cwd));
        let kept_too = known.kept_too.iter().map(|(kept, share)| (fold.kept_at(kept, cwd), *share)).collect();
        let modified = known.modified.as_ref().map(|file| fold.file(file, cwd).0);
        Known { kept_at, kept_too, modified, ..Known::default() }
    }
}

impl Fold {
    /// The advice names what the statement names: it is left out.
    fn kept_at(&mut self, kept: &KeptAt, cwd: &str) -> KeptAt {
        let file = self.file(&kept.file, cwd).0;
        KeptAt { file, line: kept.line, source: self.statement(&kept.source), remedy: None }
    }

    /// `name1.append(name2)`; texts and numbers are `…`.
    fn statement(&mut self, source: &str) -> String {
        let (mut out, mut rest) = (String::new(), source);
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let taken = match first {
                '#' => rest.len(),
                '\'' | '"' => {
                    out.push('…');
                    text(rest, first)
                }
                _ if is_word(first) => {
                    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                    let word = &rest[..end];
                    // What begins a text, as in f"…", is a part of it.
                    let is_prefix = rest[end..].starts_with(['\'', '"']);
                    match () {
                        () if is_prefix => {}
                        () if first.is_ascii_digit() => out.push('…'),
                        () if PUBLIC.has(word) => out.push_str(word),
                        () => out.push_str(&self.name(word)),
                    }
                    end
                }
                _ => {
                    out.push(first);
                    first.len_utf8()
                }
            };
            rest = &rest[taken..];
        }
        out.trim_end().to_owned()
    }
}

/// The length of a text that begins with this quote, or with three of it; where it does not end, all of it is one.
fn text(source: &str, quote: char) -> usize {
    let three = quote.to_string().repeat(3);
    let end = if source.starts_with(&three) { &three[..] } else { &three[..1] };
    let (mut at, mut escaped) = (end.len(), false);
    while let Some(c) = source[at..].chars().next() {
        if !escaped && source[at..].starts_with(end) {
            return at + end.len();
        }
        escaped = c == '\\' && !escaped;
        at += c.len_utf8();
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_keeps_its_form_and_loses_its_names() {
        let mut fold = Fold::default();
        let mut said = |source: &str| fold.statement(source);
        assert_eq!(said("secrets.append(loss)"), "name1.append(name2)");
        assert_eq!(
            said("self.secrets[key_7] = secrets + [loss.detach()]"),
            "self.name1[name3] = name1 + [name2.detach()]"
        );
        assert_eq!(said("d['secret'] = f\"it's {secret}\" + x[12] # secret"), "name4[…] = … + name5[…]");
        assert_eq!(said(r#"log('a\'secret', """se"cret""", b'secret)"#), "name6(…, …, …");
        assert_eq!(said("gehei\u{df} += 0x5ec"), "name7 += …");
        let counted = serde_json::json!({ "name": "Secrets.all" });
        assert_eq!(fold.counted(&counted)["name"], "YourClass1.name8");
        assert_eq!(fold.statement("Secrets.all.append(x)"), "YourClass1.name8.append(name5)");
    }

    #[test]
    fn the_file_gets_the_number_that_it_has_elsewhere() {
        let share = Share::default();
        let file = share.fold().file("/home/secret/plan.py", "/home/secret").0;
        let kept = KeptAt {
            file: "plan.py".into(),
            line: 7,
            source: "a.add(b)".into(),
            remedy: Some("secret".into()),
        };
        let known = Known { kept_at: Some(kept.clone()), kept_too: vec![(kept, 0.25)], ..Known::default() };
        let folded = share.kept(&known, "/home/secret");
        let expected = KeptAt { file, line: 7, source: "name1.add(name2)".into(), remedy: None };
        assert_eq!(folded.kept_at, Some(expected.clone()));
        assert_eq!(folded.kept_too, [(expected, 0.25)]);
    }
}
