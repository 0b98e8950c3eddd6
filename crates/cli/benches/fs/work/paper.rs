//! What chapter V of the UmbrellaFS dissertation measures of the file system itself (figures 14 to 17 and 22),
//! as far as it is not postmark.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{Lab, Samples};
use crate::host;
use crate::system::Stack;

/// Sources of the program that is compiled. The paper compiles OpenSSH 4.7, which has about as many.
const SOURCES: usize = 200;

/// Figures 14 and 15: a program is configured, compiled and installed.
pub(crate) fn compile(lab: &Lab, stack: &Stack, row: &'static str, samples: &mut Samples) -> Result<()> {
    let place = stack.root().join(row);
    let sources = lab.scaled(SOURCES);
    write_program(&place, sources)?;
    stack.sync()?;
    let begin = Instant::now();
    // As configure does: small programs that are compiled, run, and removed.
    let probes = "for n in $(seq 20); do \
                  echo \"int main(void) { return 0; }\" > conftest$n.c && cc -o conftest$n conftest$n.c && ./conftest$n \
                  && rm conftest$n conftest$n.c || exit 1; done";
    for script in [probes, "make -s", "make -s install"] {
        host::run(Command::new("sh").current_dir(&place).args(["-c", script]))?;
    }
    samples.push((row, begin.elapsed().as_secs_f64()));
    ensure!(place.join("installed/program").is_file(), "the program is not installed");
    Ok(())
}

fn write_program(place: &Path, sources: usize) -> Result<()> {
    fs::create_dir_all(place.join("include")).context("cannot make the folder of headers")?;
    for number in 0..20 {
        fs::write(place.join(format!("include/h{number}.h")), format!("int shared{number}(int);\n").repeat(50))?;
    }
    let mut includes = String::new();
    for number in 0..20 {
        writeln!(includes, "#include \"h{number}.h\"")?;
    }
    for number in 0..sources {
        let mut functions = String::new();
        for at in 0..40 {
            let body = format!("int s = 0; for (int i = 0; i < x; i++) s += i * {at}; return s;");
            writeln!(functions, "int f{number}_{at}(int x) {{ {body} }}")?;
        }
        fs::write(place.join(format!("s{number}.c")), format!("#include <stdio.h>\n{includes}{functions}"))?;
    }
    fs::write(place.join("main.c"), "int main(void) { return 0; }\n")?;
    let makefile = "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\n\
                    program: $(OBJECTS)\n\tcc -o $@ $^\n\
                    %.o: %.c\n\tcc -O1 -Iinclude -c -o $@ $<\n\
                    install: program\n\tinstall -D program installed/program\n\tcp -r include installed/\n";
    fs::write(place.join("Makefile"), makefile).context("cannot write the Makefile")
}
