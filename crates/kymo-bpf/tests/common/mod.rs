//! Facts for tests: formats of the running kernel's tracepoints, and the few kernel types
//! that programs of the tests name.

use std::cell::RefCell;
use std::rc::Rc;

use kymo_bpf::{
    ArgumentPlace, AttachPoint, AttachTarget, CType, EnumerationFacts, FunctionArgument,
    FunctionFacts, HeaderFile, NamedConstant, RecordLayout, RecordMember, TypeFacts,
};
use kymo_format::EventFormat;

/// Members of records: `record member type` with types as in [`TestFacts::ctype`].
const MEMBERS: &[(&str, &str, &str)] = &[
    ("sock", "__sk_common", "struct sock_common"),
    ("sock", "sk_ack_backlog", "u32"),
    ("sock", "sk_max_ack_backlog", "u32"),
    ("sock", "sk_rcvbuf", "s32"),
    ("sock_common", "skc_family", "u16"),
    ("sock_common", "skc_daddr", "u32"),
    ("sock_common", "skc_rcv_saddr", "u32"),
    ("sock_common", "skc_num", "u16"),
    ("sock_common", "skc_dport", "u16"),
    ("sock_common", "skc_state", "u8"),
    ("sock_common", "skc_v6_daddr", "struct in6_addr"),
    ("sock_common", "skc_v6_rcv_saddr", "struct in6_addr"),
    ("in6_addr", "in6_u", "union in6_union"),
    ("in6_union", "u6_addr8", "u8[16]"),
    ("sk_buff", "sk", "struct sock *"),
    ("sk_buff", "len", "u32"),
    ("sk_buff", "data", "u8 *"),
    ("tcp_sock", "bytes_acked", "u64"),
    ("tcp_sock", "bytes_received", "u64"),
    ("task_struct", "real_parent", "struct task_struct *"),
    ("task_struct", "group_leader", "struct task_struct *"),
    ("task_struct", "tgid", "s32"),
    ("task_struct", "pid", "s32"),
    ("task_struct", "comm", "char[16]"),
    ("task_struct", "se", "struct sched_entity"),
    ("task_struct", "fs", "struct fs_struct *"),
    ("sched_entity", "cfs_rq", "struct cfs_rq *"),
    ("cfs_rq", "nr_queued", "u32"),
    ("cfs_rq", "nr_running", "u32"),
    ("fs_struct", "pwd", "struct path"),
    ("path", "mnt", "struct vfsmount *"),
    ("path", "dentry", "struct dentry *"),
    ("dentry", "d_parent", "struct dentry *"),
    ("dentry", "d_name", "struct qstr"),
    ("qstr", "name", "char *"),
    ("vfsmount", "mnt_root", "struct dentry *"),
    ("mount", "mnt_parent", "struct mount *"),
    ("mount", "mnt_mountpoint", "struct dentry *"),
    ("mount", "mnt", "struct vfsmount"),
    ("nameidata", "path", "struct path"),
    ("nameidata", "last", "struct qstr"),
    ("bio", "bi_bdev", "struct block_device *"),
    ("bio", "bi_disk", "struct gendisk *"),
    ("block_device", "bd_disk", "struct gendisk *"),
    ("gendisk", "disk_name", "char[32]"),
    ("oom_control", "memcg", "struct mem_cgroup *"),
    ("oom_control", "chosen", "struct task_struct *"),
    ("oom_control", "totalpages", "u64"),
    ("mem_cgroup", "css", "struct css"),
    ("css", "cgroup", "struct cgroup *"),
    ("cgroup", "kn", "struct kernfs_node *"),
    ("kernfs_node", "id", "u64"),
    ("__kernel_timespec", "tv_sec", "s64"),
    ("__kernel_timespec", "tv_nsec", "s64"),
    ("timespec", "tv_sec", "s64"),
    ("timespec", "tv_nsec", "s64"),
    ("request", "rq_disk", "struct gendisk *"),
    ("request", "q", "struct request_queue *"),
    ("request_queue", "disk", "struct gendisk *"),
    ("linux_dirent", "d_name", "char[1]"),
    ("bpf_iter__task", "task", "struct task_struct *"),
    ("pt_regs", "ip", "u64"),
];

/// Facts.
#[derive(Default)]
pub(crate) struct TestFacts {
    /// Headers of the user's own: names and texts.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Attach points that are wanted: a part of their names.
    pub(crate) wanted: Option<&'static str>,
    pub(crate) records: RefCell<Vec<String>>,
}

impl TestFacts {
    fn record_id(&self, name: &str) -> u32 {
        let mut records = self.records.borrow_mut();
        match records.iter().position(|n| n == name) {
            Some(at) => at as u32,
            None => {
                records.push(name.to_owned());
                records.len() as u32 - 1
            }
        }
    }

    fn ctype(&self, text: &str) -> CType {
        if let Some(target) = text.strip_suffix(" *") {
            return CType::Pointer { target: Box::new(self.ctype(target)), user: false };
        }
        if let Some((element, count)) = text.strip_suffix(']').and_then(|t| t.split_once('[')) {
            let count = count.parse().expect("a count");
            return CType::Array { element: Box::new(self.ctype(element)), count };
        }
        if let Some(tag) = text.strip_prefix("struct ").or(text.strip_prefix("union ")) {
            return CType::Record { id: self.record_id(tag) };
        }
        let (signed, digits) = match text {
            "char" => return CType::Integer { size: 1, signed: true, is_char: true },
            _ => (text.starts_with('s'), &text[1..]),
        };
        let bits: u8 = digits.parse().expect("bits of an integer");
        CType::Integer { size: bits / 8, signed, is_char: false }
    }

    fn size(&self, ctype: &CType) -> u32 {
        match ctype {
            CType::Integer { size, .. } => u32::from(*size),
            CType::Pointer { .. } => 8,
            CType::Array { element, count } => self.size(element) * count,
            CType::Record { id } => self.record_layout(*id).map_or(0, |l| l.size),
            _ => 1,
        }
    }
}

/// Text of a tracepoint's format, where the machine shows it.
pub(crate) fn format_text(category: &str, event: &str) -> Option<String> {
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let path = |root: &&str| format!("{root}/events/{category}/{event}/format");
    roots.iter().find_map(|root| std::fs::read_to_string(path(root)).ok())
}

impl TypeFacts for TestFacts {
    fn expand(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String> {
        let wild = point.name.contains('*');
        let mut found = point.clone();
        if wild {
            // One name that the pattern matches is enough here.
            let name = |text: &mut String| *text = text.replace('*', "");
            match &mut found.target {
                AttachTarget::Tracepoint { event, .. } => {
                    name(event);
                    if event == "sys_enter_exec" {
                        *event = "sys_enter_execve".into();
                    }
                }
                AttachTarget::Kprobe { function, .. } => name(function),
                _ => {}
            }
            found.name = found.name.replace('*', "");
        }
        Ok(vec![found])
    }

    fn tracepoint_format(&self, category: &str, event: &str) -> Result<Rc<EventFormat>, String> {
        let text = format_text(category, event).ok_or("no such event")?;
        EventFormat::parse(&text).map(Rc::new).map_err(|e| e.to_string())
    }

    fn find_type(&self, name: &str) -> Option<CType> {
        let tag = name.strip_prefix("struct ").or(name.strip_prefix("union "))?;
        MEMBERS.iter().any(|(r, ..)| *r == tag).then(|| self.ctype(name))
    }

    fn record_layout(&self, id: u32) -> Option<Rc<RecordLayout>> {
        let name = self.records.borrow().get(id as usize)?.clone();
        let (mut members, mut at) = (Vec::new(), 0);
        for (_, member, text) in MEMBERS.iter().filter(|(record, ..)| *record == name) {
            let ctype = self.ctype(text);
            let size = self.size(&ctype);
            at = u32::next_multiple_of(at, size.clamp(1, 8).next_power_of_two());
            let name = (*member).to_owned();
            members.push(RecordMember { name, ctype, bit_offset: at * 8, bit_size: None });
            at += size;
        }
        Some(Rc::new(RecordLayout { name, is_union: false, size: at.next_multiple_of(8), members }))
    }

    fn enumerators(&self, _: u32) -> Option<Rc<EnumerationFacts>> {
        None
    }

    fn constant(&self, name: &str) -> Option<NamedConstant> {
        let value = match name {
            "TCP_SYN_SENT" => 2,
            "TCP_FIN_WAIT1" => 4,
            "TCP_CLOSE" => 7,
            "TCP_LAST_ACK" => 9,
            "SKB_DROP_REASON_NOT_SPECIFIED" => 2,
            "AF_INET" => 2,
            "AF_INET6" => 10,
            _ => return None,
        };
        Some(NamedConstant { value, ctype: None })
    }

    fn function(&self, point: &AttachPoint) -> Result<Rc<FunctionFacts>, String> {
        match &point.target {
            AttachTarget::Fentry { function, .. } if function == "vfs_read" => {
                let argument = |name: &str, text, n| FunctionArgument {
                    name: name.to_owned(),
                    ctype: self.ctype(text),
                    place: ArgumentPlace::Index(n),
                };
                let arguments = vec![argument("file", "u64", 0), argument("count", "u64", 1)];
                Ok(Rc::new(FunctionFacts { arguments, returns: self.ctype("s64") }))
            }
            _ => Err("not known to the test".into()),
        }
    }

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        (name == "avenrun").then_some(0xffff_ffff_8200_0000)
    }

    fn user_symbol(&self, _: &str, _: &str) -> Option<(u64, u64)> {
        None
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        (path == "/sys/fs/cgroup").then_some(1)
    }

    fn header(&self, header: &str, _: Option<&str>) -> Result<Option<HeaderFile>, String> {
        let found = self.headers.iter().find(|(name, _)| *name == header);
        let file = |text: &String| HeaderFile {
            path: header.to_owned(),
            text: text.clone(),
            is_kernel: false,
        };
        Ok(found.map(|(_, text)| file(text)))
    }

    fn is_wanted(&self, point: &AttachPoint) -> bool {
        self.wanted.is_none_or(|part| point.name.contains(part))
    }

    fn included_text(&self, name: &str) -> Option<String> {
        (name == "lib.bt").then(|| "macro seven() { 7 }\nimport \"lib.bt\";".into())
    }
}
