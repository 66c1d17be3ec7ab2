//! Words of a command line without what is secret in them: a recording is sent to others, and so is its page.
//!
//! A secret is told by what it is called (`--token X`, `--api-key=X`, `HF_TOKEN=X`, `"password": "X"`), by where it stands (before the
//! `@` of an address) or by how it begins (`hf_…`, `sk-…`, `ghp_…`). This errs on the side of hiding: what is hidden in vain is a word
//! less in a report.

use crate::event::WordList;

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

/// Beginnings that only keys and tokens have. What follows is letters, digits, `_`, `-` and `.`.
const BEGINNINGS: WordList = WordList(
    "hf_ sk- sk_live_ sk_test_ rk_live_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- xoxb- xoxp- \
     xoxa- xoxs- xapp- AKIA ASIA AIza ya29. eyJ pypi- npm_ nvapi- gsk_ r8_ dckr_pat_ SG. dapi lsv2_",
);

/// Words that make a name one of a secret, alone or after others: `hub_token`, `aws.secret.access.key`.
const SECRETS: WordList = WordList(
    "token secret secrets password passwd passphrase passcode pwd pass apikey authtoken accesstoken \
     accesskey secretkey privatekey credential credentials authorization bearer",
);
/// What a key is the key to, where it is secret.
const KEYS: WordList =
    WordList("api access secret private auth account session encryption signing client ssh license");
/// Words before `token` that make it one of a text.
const OF_TEXTS: WordList = WordList(
    "pad eos bos unk mask sep cls image video audio special stop start end per prompt max min num last \
     first next each user assistant system",
);
/// What is said of a token of a text, behind the word.
const MEASURES: WordList =
    WordList("id ids type types count budget limit level length size rate weight dropout");

/// The words of a command, with every secret as [`HIDDEN`]. A command that has been through this comes out as it went in.
pub fn masked(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut is_next = false;
    let mut out = Vec::new();
    for word in words {
        let hides = std::mem::take(&mut is_next);
        let is_option = word.starts_with('-');
        if hides && !is_option && !is_plain(&word) {
            out.push(HIDDEN.to_owned());
            continue;
        }
        // `--token` alone: the next word is it. What has `=` is looked at as a whole.
        is_next = is_option && !word.contains('=') && is_secret(&word);
        out.push(mask(&word));
    }
    out
}

/// What says nothing, whatever it is called.
fn is_plain(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "true" | "false" | "none" | "null" | "yes" | "no")
}

/// One word without its secrets.
fn mask(word: &str) -> String {
    // The whole of what an option or a variable is set to, whatever is in it.
    if let Some((name, value)) = word.split_once('=')
        && is_name(name)
        && is_secret(name)
    {
        return if is_plain(value) { word.to_owned() } else { format!("{name}={HIDDEN}") };
    }
    begun(&assigned(&addressed(word)))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.+".contains(&b))
}

/// Whether a name is one of a secret: `--hf-token`, `WANDB_API_KEY`, `clientSecret`, `trainer.password`.
fn is_secret(name: &str) -> bool {
    let mut words: Vec<String> = Vec::new();
    let mut before = None;
    for c in name.chars() {
        let begins = !c.is_ascii_alphanumeric()
            || (c.is_ascii_uppercase() && before.is_some_and(|b: char| b.is_ascii_lowercase()));
        if begins || words.is_empty() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        before = Some(c);
    }
    words.retain(|w| !w.is_empty());
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    // What stands before decides: the `token` of `pad_token` is no secret, the `key` of `api_key` is one.
    (0..words.len()).any(|i| {
        let before = if i == 0 { "" } else { word(i - 1) };
        match word(i) {
            "token" => !OF_TEXTS.has(before) && !MEASURES.has(word(i + 1)),
            "key" | "keys" => KEYS.has(before),
            "pass" => i + 1 == words.len() && i > 0,
            other => SECRETS.has(other),
        }
    })
}

/// Without the user and password of addresses: `https://***@host`.
fn addressed(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/?#\"'<>".contains(c)).unwrap_or(after.len());
        let (authority, after) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((_, host)) => out.push_str(&format!("{HIDDEN}@{host}")),
            None => out.push_str(authority),
        }
        rest = after;
    }
    out + rest
}

/// Without what is set within a word: of a query (`?token=X&…`), JSON (`"api_key": "X"`), code (`login(token="X")`).
fn assigned(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at);
        let (sign, value) = after.split_at(1);
        out.push_str(before);
        out.push_str(sign);
        rest = value;
        let name = before.trim_end_matches([' ', '"', '\'', '\\']);
        let from =
            name.rfind(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c))).map_or(0, |i| i + 1);
        let Some(name) = name.get(from..).filter(|n| is_secret(n)) else { continue };
        // Quotes and spaces stay where they are; a quoted value ends with its quote.
        let lead = value.len() - value.trim_start_matches([' ', '"', '\'', '\\']).len();
        let (lead, value) = value.split_at(lead);
        let is_quoted = lead.contains(['"', '\'']);
        // `Authorization: Bearer X` is one value.
        let is_whole = name.to_ascii_lowercase().ends_with("authorization");
        let ends = |c: char| match c {
            '"' | '\'' | '\\' => true,
            ' ' | '\t' => !is_quoted && !is_whole,
            ',' | '&' | ';' | '}' | ')' | ']' | '\n' => !is_quoted,
            _ => false,
        };
        let end = value.find(ends).unwrap_or(value.len());
        let (value, after) = value.split_at(end);
        out.push_str(lead);
        out.push_str(if is_plain(value) { value } else { HIDDEN });
        rest = after;
    }
    out + rest
}

/// Without what begins as only keys and tokens do.
fn begun(word: &str) -> String {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while !rest.is_empty() {
        let length = rest.find(|c| !is_inner(c)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(length);
        let beginning = BEGINNINGS.iter().find(|b| piece.starts_with(*b)).filter(|b| is_key(b, piece));
        match beginning {
            Some(beginning) => out.push_str(&format!("{beginning}{HIDDEN}")),
            None => out.push_str(piece),
        }
        let step = after.chars().next().map_or(0, char::len_utf8);
        let (separator, after) = after.split_at(step);
        out.push_str(separator);
        rest = after;
    }
    out
}

/// Whether what follows a beginning looks like a key's, and not like the rest of a name (`hf_trainer.py`, `sk-learn`).
fn is_key(beginning: &str, piece: &str) -> bool {
    let body = piece.get(beginning.len()..).unwrap_or_default();
    let is_file = [".py", ".json", ".yaml", ".yml", ".toml", ".sh", ".txt", ".pt", ".bin"]
        .iter()
        .any(|e| body.ends_with(e));
    let least = if beginning == "eyJ" || beginning == "dapi" { 20 } else { 6 };
    let is_mixed = body.bytes().any(|b| b.is_ascii_digit()) || body.bytes().any(|b| b.is_ascii_uppercase());
    !is_file && body.len() >= least && (is_mixed || body.len() >= 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &str) -> String {
        masked(command.split(' ').map(str::to_owned)).join(" ")
    }

    #[test]
    fn what_is_called_a_secret_is_hidden() {
        for (command, shown) in [
            ("t.py --token=abc --lr 1", "t.py --token=*** --lr 1"),
            ("t.py --token abc --lr 1", "t.py --token *** --lr 1"),
            ("t.py --api-key X", "t.py --api-key ***"),
            ("t.py --api_key=a=b=c", "t.py --api_key=***"),
            ("t.py --password hunter2", "t.py --password ***"),
            ("t.py --hub_token abc --push", "t.py --hub_token *** --push"),
            ("t.py --wandb-api-key=k", "t.py --wandb-api-key=***"),
            (
                "env HF_TOKEN=abc AWS_SECRET_ACCESS_KEY=x/y+z t.py",
                "env HF_TOKEN=*** AWS_SECRET_ACCESS_KEY=*** t.py",
            ),
            (
                "t.py trainer.clientSecret=s +model.auth_token=q",
                "t.py trainer.clientSecret=*** +model.auth_token=***",
            ),
            ("t.py -password x", "t.py -password ***"),
            ("t.py --db-pass x", "t.py --db-pass ***"),
        ] {
            assert_eq!(line(command), shown);
            assert_eq!(line(shown), shown, "once is enough");
        }
    }

    #[test]
    fn a_secret_within_a_word_is_hidden() {
        let one = |word: &str| masked([word.to_owned()]).remove(0);
        assert_eq!(one("https://me:pass@host/x?a=1"), "https://***@host/x?a=1");
        assert_eq!(one("postgres://u:p@h:5432/db"), "postgres://***@h:5432/db");
        assert_eq!(one("https://h/x?token=abc&n=1"), "https://h/x?token=***&n=1");
        assert_eq!(one(r#"{"api_key": "a b", "lr": 1}"#), r#"{"api_key": "***", "lr": 1}"#);
        assert_eq!(one(r#"login(token="abc"); main()"#), r#"login(token="***"); main()"#);
        assert_eq!(one("Authorization: Bearer abc.def"), "Authorization: ***");
        assert_eq!(one("--header=Authorization: Bearer abc"), "--header=Authorization: ***");
    }

    #[test]
    fn a_key_is_known_by_how_it_begins() {
        let one = |word: &str| masked([word.to_owned()]).remove(0);
        for (word, shown) in [
            ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz", "hf_***"),
            ("sk-proj-0123456789abcdef", "sk-***"),
            ("--key=ghp_0123456789abcdef0123", "--key=ghp_***"),
            ("x,AKIAIOSFODNN7EXAMPLE,y", "x,AKIA***,y"),
        ] {
            assert_eq!(one(word), shown);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for command in [
            "python -u train.py --max-tokens 512 --max_new_tokens=64 --tokenizer gpt2 --pad_token <pad> --eos-token </s>",
            "torchrun --nproc-per-node=8 -m trl.scripts.sft --model Qwen/Qwen2-VL --key-dim 64 --num-keys=4",
            "t.py hf_trainer.py sk-learn hf_model_path --config=configs/hf_finetune.yaml --author me --pass 2",
            "t.py http://localhost:4318/v1 data:image/png --use_auth_token False --token_ids 1,2 lr=0.1",
            "t.py --tokens-per-batch 4096 --monkey=1 --compass n a:b=c größe=1",
        ] {
            assert_eq!(line(command), command);
        }
    }

    #[test]
    fn any_word_is_taken() {
        for word in [
            "=",
            ":",
            "://",
            "token=",
            "token:",
            "--token",
            "@://@",
            "hf_",
            "\u{1F600}=token:é",
            "token=\"",
            "a://b@",
        ] {
            let _ = masked([word.to_owned(), word.to_owned()]);
        }
    }
}
