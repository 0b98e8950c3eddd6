//! The schemes by name.

use super::{Scheme, SchemeInfo};
use crate::error::PolicyError;
use crate::params::{Params, Spec};

/// All schemes.
pub fn schemes() -> &'static [SchemeInfo] {
    const ALL: &[SchemeInfo] = &[
        super::r_lfs::INFO,
        super::sepgc::INFO,
        super::dac::INFO,
        super::sfs::INFO,
        super::sepbit::INFO,
        super::organ::INFO,
        super::oracle::INFO,
    ];
    ALL
}

/// The schemes that a store on a disk can use, because they need not know the future.
pub fn schemes_for_disks() -> impl Iterator<Item = &'static SchemeInfo> {
    let usual = |info: &SchemeInfo| Params::new().check(info.name, info.params).map(|values| (info.make)(&values));
    schemes().iter().filter(move |info| usual(info).is_ok_and(|scheme| !scheme.knows_the_future()))
}

impl SchemeInfo {
    /// Makes the scheme that a text like `r_lfs:regions=3` names.
    pub fn make(spec: &Spec) -> Result<Box<dyn Scheme>, PolicyError> {
        SchemeInfo::named(spec, || schemes().iter().map(|info| info.name).collect())?.build(spec)
    }

    /// The same for a store on a disk, which cannot know the future.
    pub fn make_for_disk(spec: &Spec) -> Result<Box<dyn Scheme>, PolicyError> {
        let known = || schemes_for_disks().map(|info| info.name).collect();
        let info = SchemeInfo::named(spec, known)?;
        let scheme = info.build(spec)?;
        if scheme.knows_the_future() {
            return Err(PolicyError::NeedsFuture { name: info.name, known: known() });
        }
        Ok(scheme)
    }

    fn named(spec: &Spec, known: impl Fn() -> Vec<&'static str>) -> Result<&'static SchemeInfo, PolicyError> {
        let unknown = || PolicyError::UnknownScheme { name: spec.name.clone(), known: known() };
        schemes().iter().find(|info| info.name == spec.name).ok_or_else(unknown)
    }

    fn build(&self, spec: &Spec) -> Result<Box<dyn Scheme>, PolicyError> {
        Ok((self.make)(&spec.params.check(self.name, self.params)?))
    }
}
