//! A setting as the command that runs it again.

use std::fmt::Write;

use umbrella_units::{ByteSize, PAGE_BYTES};

use super::Setting;

const MIB: f64 = (1 << 20) as f64;

impl Setting {
    /// The command line, quoted for a POSIX shell.
    pub fn command(&self) -> String {
        let mut command = format!(
            "umbrella lab run --policy {} {} {} --disk {} --scheduler {} --memory {} --seed {} --scale {}",
            quoted(&self.policy),
            if self.trace.is_some() { "--trace" } else { "--workload" },
            quoted(self.trace.as_deref().unwrap_or(&self.input)),
            quoted(&self.disk),
            quoted(&self.scheduler),
            exact(self.unscaled_memory()),
            self.seed,
            self.scale
        );
        if self.staging {
            command += " --staging";
        }
        for (name, value) in &self.options {
            let _ = write!(command, " {}", quoted(&format!("--{name}")));
            if !value.is_empty() {
                let _ = write!(command, " {}", quoted(value));
            }
        }
        command
    }

    /// The memory to ask for: a scale shrinks a workload's memory with the workload. In whole MiB where those shrink to
    /// the same pages.
    fn unscaled_memory(&self) -> ByteSize {
        if self.trace.is_some() || self.scale <= 0.0 || self.scale >= 1.0 {
            return self.memory;
        }
        let whole = self.memory.0 as f64 / self.scale;
        let rounded = (whole / MIB).round() * MIB;
        let pages = |bytes: f64| bytes as u64 / PAGE_BYTES;
        let same = pages(rounded * self.scale) == pages(self.memory.0 as f64);
        ByteSize(if same { rounded } else { whole.ceil() } as u64)
    }
}

/// The size in words where they say it exactly, else in bytes.
fn exact(size: ByteSize) -> String {
    let text: String = size.to_string().split_whitespace().collect();
    if text.parse() == Ok(size) { text } else { size.0.to_string() }
}

/// The words of a command, quoted for a POSIX shell.
pub fn shell_words<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.,:=/+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(policy: &str, input: &str) -> Setting {
        Setting {
            policy: policy.to_owned(),
            input: input.to_owned(),
            disk: "maxtor_80gb".to_owned(),
            scheduler: "deadline".to_owned(),
            memory: ByteSize(512 << 20),
            staging: false,
            seed: 7,
            scale: 0.5,
            ..Setting::default()
        }
    }

    #[test]
    fn a_setting_is_the_command_that_repeats_it() {
        assert_eq!(
            setting("zone_segment:alpha=5,zone=8MiB", "postmark:files=100").command(),
            "umbrella lab run --policy zone_segment:alpha=5,zone=8MiB --workload postmark:files=100 \
             --disk maxtor_80gb --scheduler deadline --memory 1GiB --seed 7 --scale 0.5"
        );
        let trace = Some("traces/prxy 0.csv.gz".to_owned());
        let staged =
            Setting { staging: true, memory: ByteSize((1 << 20) + 1), trace, ..setting("file", "prxy 0.csv.gz") };
        let command = staged.command();
        assert!(
            command.contains("--trace 'traces/prxy 0.csv.gz'") && command.contains("--memory 1048577"),
            "{command}"
        );
        assert!(command.ends_with("--staging"), "{command}");
    }

    #[test]
    fn memory_is_asked_for_as_it_was_before_it_shrank_with_a_workload() {
        for scale in [1.0, 0.5, 0.1, 0.03, 0.001] {
            for asked in [512 << 20, 1 << 30, 5 << 19, (1 << 30) + PAGE_BYTES] {
                let shrink = |bytes: u64| ByteSize((bytes as f64 * scale) as u64 / PAGE_BYTES * PAGE_BYTES);
                let run = Setting { memory: shrink(asked), scale, ..setting("file", "postmark") };
                assert_eq!(shrink(run.unscaled_memory().0), run.memory, "{asked} at {scale}");
                let trace = Setting { trace: Some("a.csv".to_owned()), ..run.clone() };
                assert_eq!(trace.unscaled_memory(), run.memory);
            }
        }
    }

    #[test]
    fn options_follow_and_a_flag_has_no_value() {
        let mut run = setting("zone:zone=8MiB", "postmark:files=100");
        for (name, value) in [("queue-depth", "4"), ("delayed-allocation", "")] {
            run.options.insert(name.to_owned(), value.to_owned());
        }
        let command = run.command();
        assert!(command.ends_with("--scale 0.5 --delayed-allocation --queue-depth 4"), "{command}");
    }

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        assert!(setting("file; rm -rf ~", "a").command().contains("--policy 'file; rm -rf ~'"));
        assert!(setting("it's", "").command().contains("--policy 'it'\\''s' --workload ''"));
    }
}
