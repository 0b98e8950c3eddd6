//! Takes the given text apart: an fstab line, a command line, the options alone, or the lines of an option file.

use super::MergerfsError;

/// What was given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) branches: Option<String>,
    pub(super) mount: Option<String>,
    pub(super) settings: Vec<Setting>,
}

/// One option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// With `-` in place of `_`.
    pub(super) key: String,
    pub(super) value: Option<String>,
    /// As it was written.
    name: String,
}

impl Setting {
    fn parse(text: &str) -> Setting {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
            None => (text.trim(), None),
        };
        Setting { key: name.replace('_', "-"), value, name: name.to_owned() }
    }

    /// As it was given.
    pub(super) fn written(&self) -> String {
        self.value.as_ref().map_or_else(|| self.name.clone(), |value| format!("{}={value}", self.name))
    }
}

impl Input {
    pub(super) fn parse(text: &str) -> Result<Input, MergerfsError> {
        let text = text.trim();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (first, second) = (lines.next().unwrap_or_default(), lines.next());
        let mut input = Input::default();
        if second.is_some() {
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
                input.set(line);
            }
            return Ok(input);
        }
        let fields: Vec<&str> = first.split_whitespace().collect();
        match fields.as_slice() {
            [source, mount, kind, options, ..]
                if !source.starts_with('-') && mount.starts_with('/') && is_kind(kind) =>
            {
                input.of_fstab(source, mount, kind, options)?;
            }
            [source, mount, kind] if !source.starts_with('-') && mount.starts_with('/') && is_kind(kind) => {
                input.of_fstab(source, mount, kind, "")?;
            }
            [options] if !options.starts_with('/') => input.options(options),
            _ => input.command_line(&words(first)),
        }
        Ok(input)
    }

    fn of_fstab(&mut self, source: &str, mount: &str, kind: &str, options: &str) -> Result<(), MergerfsError> {
        let source = unescape(source);
        let branches = source.strip_prefix("mergerfs#");
        let is_mergerfs = kind.ends_with("mergerfs") || branches.is_some();
        if !is_mergerfs {
            return Err(MergerfsError::OtherKind { kind: kind.to_owned() });
        }
        // A name alone, with the branches among the options.
        let branches = branches.map(str::to_owned).or_else(|| source.contains('/').then(|| source.clone()));
        self.options(&unescape(options));
        self.branches = branches.or(self.branches.take());
        self.mount = Some(unescape(mount));
        Ok(())
    }

    fn command_line(&mut self, words: &[String]) {
        let mut plain = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-o" => self.options(words.next().map_or("", String::as_str)),
                "-f" | "-d" | "-s" | "sudo" | "mount" => {}
                "-t" => drop(words.next()),
                word if word.starts_with("-o") => self.options(word.get(2..).unwrap_or_default()),
                word if word.ends_with("mergerfs") && plain.is_empty() && !word.contains(':') => {}
                word if word.starts_with('-') => self.set(word.trim_start_matches('-')),
                word => plain.push(word.to_owned()),
            }
        }
        let mut plain = plain.into_iter();
        let (first, second) = (plain.next(), plain.next());
        match (first, second) {
            (Some(mount), None) if self.branches.is_some() => self.mount = Some(mount),
            (first, second) => {
                self.branches = first.or(self.branches.take());
                self.mount = second.or(self.mount.take());
            }
        }
    }

    /// Options with commas between them; `\,` stays in a value.
    fn options(&mut self, options: &str) {
        let mut option = String::new();
        let mut chars = options.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => option.extend(chars.next()),
                ',' => self.set(&std::mem::take(&mut option)),
                c => option.push(c),
            }
        }
        self.set(&option);
    }

    fn set(&mut self, option: &str) {
        let setting = Setting::parse(option);
        match (setting.key.as_str(), &setting.value) {
            ("", _) => {}
            ("branches" | "srcmounts", Some(value)) => self.branches = Some(value.clone()),
            ("mountpoint", Some(value)) => self.mount = Some(value.clone()),
            // The rest of a branch's own options: `branches=/mnt/a=NC,50G:/mnt/b`.
            (key, _) if continues_value(key) => {
                if let Some(branches) = &mut self.branches {
                    branches.push(',');
                    branches.push_str(option);
                }
            }
            _ => self.settings.push(setting),
        }
    }
}

/// Whether this word continues the value before it: no option begins with a digit.
fn continues_value(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_digit())
}

fn is_kind(word: &str) -> bool {
    word.ends_with("mergerfs") || !word.starts_with(['/', '-'])
}

/// `\040` is a space, as in fstab.
pub(crate) fn unescape(text: &str) -> String {
    const ESCAPES: [(&str, &str); 4] = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    ESCAPES.iter().fold(text.to_owned(), |text, (escape, meant)| text.replace(escape, meant))
}

/// Words as a shell tells them apart.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut begun, mut quote) = (Vec::new(), String::new(), false, None);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => (quote, begun) = (Some(c), true),
            ('\\', None | Some('"')) => {
                begun = true;
                // The one before a comma belongs to the options.
                match chars.next() {
                    Some(',') => word.push_str("\\,"),
                    next => word.extend(next),
                }
            }
            (c, None) if c.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (c, _) => {
                begun = true;
                word.push(c);
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}
