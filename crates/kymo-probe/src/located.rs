//! Probe points and variables there as the debugging information has them: for those who
//! read them by other means than fetch arguments.

use kymo_debuginfo::dwarf::{Die, Dwarf, VariableLocation};

use crate::grammar::ProbeDescription;
use crate::point_finder::{CodeSite, PointError, PointFinder};
use crate::registers;

/// A probe point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedPoint {
    /// Address.
    pub addr: u64,
    /// Entry of the function it is in.
    pub entry: Option<u64>,
    /// Whether it is in an inlined copy of what the description means.
    pub is_inlined: bool,
}

/// A variable at a point.
pub struct LocatedVariable<'s> {
    /// The point.
    pub point: LocatedPoint,
    /// Location of the variable, or the reason why there is none.
    pub location: Result<VariableLocation, String>,
    /// Its type behind names and qualifiers; none for `void`.
    pub kind: Option<Die<'s>>,
}

impl<'d, 's> PointFinder<'d, 's> {
    /// The debugging information that is searched.
    pub fn dwarf(&self) -> &'d Dwarf<'s> {
        self.dwarf
    }

    /// The points of a description.
    ///
    /// # Errors
    /// If there is none.
    pub fn located_points(
        &mut self,
        d: &ProbeDescription,
    ) -> Result<Vec<LocatedPoint>, PointError> {
        self.sites(d)?.iter().map(|site| self.located(site)).collect()
    }

    /// The first point in each function and in each inlined copy, and the number of the others: the
    /// line of a loop has code before it and in each of its rounds, and a round may be there
    /// several times.
    ///
    /// # Errors
    /// If there is none.
    pub fn first_points(
        &mut self,
        d: &ProbeDescription,
    ) -> Result<(Vec<LocatedPoint>, usize), PointError> {
        let mut sites = self.sites(d)?;
        sites.sort_by_key(|site| site.addr);
        let mut first: Vec<CodeSite<'s>> = Vec::new();
        let mut others = 0;
        for site in sites {
            if first.iter().any(|known| known.scope == site.scope) {
                others += 1;
            } else {
                first.push(site);
            }
        }
        let points = first.iter().map(|site| self.located(site)).collect::<Result<_, _>>()?;
        Ok((points, others))
    }

    fn located(&self, site: &CodeSite<'s>) -> Result<LocatedPoint, PointError> {
        let entry = self.dwarf.entry(&site.function)?;
        let entry = self.dwarf.entry_pc(&site.function.unit, &entry)?;
        let is_inlined = site.scope != site.function;
        Ok(LocatedPoint { addr: site.addr, entry, is_inlined })
    }

    /// A variable or parameter at all points of a description.
    ///
    /// # Errors
    /// If there is no such point, or no such variable at any of them.
    pub fn located_variables(
        &mut self,
        d: &ProbeDescription,
        name: &str,
    ) -> Result<Vec<LocatedVariable<'s>>, PointError> {
        let mut found = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for site in self.sites(d)? {
            let values = self.values(&site)?;
            let is_inlined = site.scope != site.function;
            let point = LocatedPoint { addr: site.addr, entry: values.context.entry, is_inlined };
            let Some(seen) = self.dwarf.variable_at(&site.scope, name, site.addr)? else {
                for seen in self.dwarf.variables_at(&site.scope, site.addr)? {
                    names.extend(self.dwarf.name(&seen.die)?);
                }
                continue;
            };
            let entry = self.dwarf.entry(&seen.die)?;
            let location = match values.context.locate(&seen.die, &entry)? {
                Some(VariableLocation::Gone(why)) => {
                    Err(format!("{name} cannot be read here: {why}"))
                }
                Some(location) => Ok(location),
                None => Err(format!("{name} is optimized out here")),
            };
            let kind = self.dwarf.real_type(&seen.die)?;
            found.push(LocatedVariable { point, location, kind });
        }
        if found.is_empty() {
            names.sort();
            names.dedup();
            let what = if names.is_empty() {
                format!("no variable {name} here")
            } else {
                format!("no variable {name} here; there are {}", names.join(", "))
            };
            return Err(PointError::NotFound { what });
        }
        Ok(found)
    }

    /// Name of a register by its DWARF number, with its `%`.
    pub fn register_name(&self, number: u16) -> Option<String> {
        registers::kernel_name(self.dwarf.architecture(), number)
    }
}
