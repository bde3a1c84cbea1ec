/* Every structure of the most used system calls, in both directions. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <poll.h>
#include <fcntl.h>
#include <termios.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/statfs.h>
#include <sys/times.h>
#include <sys/xattr.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <pty.h>
#include <sys/uio.h>
#include <sys/sendfile.h>
#include <sched.h>
#include <time.h>
#define S(n,...) syscall(SYS_##n,##__VA_ARGS__)
void h(int s){}
int main(void){
 char buf[4096]; struct statx sx; S(statx,AT_FDCWD,"/",AT_STATX_SYNC_AS_STAT,STATX_ALL,&sx); S(statx,AT_FDCWD,"/dev/null",0,0x7ff,&sx);
 int m,s; struct termios t; m=open("/dev/ptmx",O_RDWR); S(ioctl,m,TCGETS,&t); t.c_iflag|=1; S(ioctl,m,TCSETS,&t); S(ioctl,m,TIOCSPTLCK,&(int){0}); S(ioctl,m,TIOCGPTN,&s); struct winsize w; S(ioctl,m,TIOCGWINSZ,&w); S(ioctl,m,TIOCSWINSZ,&w); S(ioctl,m,TIOCGPGRP,&s); S(ioctl,m,FIONREAD,&s); S(ioctl,m,FIONBIO,&s); S(ioctl,m,TIOCSCTTY,0);S(ioctl,m,TCFLSH,0);S(ioctl,m,TIOCGPTPEER,2);
 struct statfs f;  S(statfs,"/proc",&f);  S(statfs,"/nonex",&f);
 int sv[2]; S(socketpair,AF_UNIX,SOCK_STREAM,0,sv); struct iovec io[2]={{"abc",3},{"def",3}}; 
 union{char b[64];struct cmsghdr h;}c; struct msghdr mh={.msg_iov=io,.msg_iovlen=2,.msg_control=c.b,.msg_controllen=CMSG_SPACE(4)}; c.h.cmsg_len=CMSG_LEN(4);c.h.cmsg_level=1;c.h.cmsg_type=1;*(int*)CMSG_DATA(&c.h)=0; S(sendmsg,sv[0],&mh,0);
 struct iovec ri={buf,100}; mh.msg_iov=&ri;mh.msg_iovlen=1;mh.msg_controllen=64;S(recvmsg,sv[1],&mh,0); mh.msg_controllen=64; S(recvmsg,sv[1],&mh,MSG_DONTWAIT);
 int one=1; socklen_t l=4; int ts=S(socket,AF_INET,SOCK_STREAM,IPPROTO_TCP); S(setsockopt,ts,SOL_SOCKET,SO_REUSEADDR,&one,4);S(setsockopt,ts,SOL_TCP,TCP_NODELAY,&one,4);S(getsockopt,ts,1,SO_ERROR,&one,&l);S(getsockopt,ts,1,SO_TYPE,&one,&l);S(getsockopt,ts,1,SO_DOMAIN,&one,&l);S(getsockopt,ts,1,SO_PROTOCOL,&one,&l); l=16; S(getsockopt,ts,1,SO_LINGER,buf,&l); l=16; S(getsockopt,ts,1,SO_RCVTIMEO,buf,&l); l=16; S(getsockopt,sv[0],1,SO_PEERCRED,buf,&l); l=16;S(getsockopt,ts,6,TCP_CONGESTION,buf,&l); l=100;S(setsockopt,ts,6,TCP_CONGESTION,"cubic",5); struct timeval tv={1,2};S(setsockopt,ts,1,SO_RCVTIMEO,&tv,16); struct linger lg={1,2};S(setsockopt,ts,1,SO_LINGER,&lg,8); l=16; S(getsockopt,ts,1,SO_PEERNAME,buf,&l); S(setsockopt,ts,1,SO_BINDTODEVICE,"lo",3);S(setsockopt,ts,0,IP_TOS,&one,4);S(setsockopt,ts,0,IP_TOS,&one,1); struct ip_mreqn mr={0}; S(setsockopt,ts,0,IP_ADD_MEMBERSHIP,&mr,12);
 struct sockaddr_in a={.sin_family=2}; l=16; S(bind,ts,&a,16);S(listen,ts,1);S(getsockname,ts,&a,&l); l=128; S(getsockname,ts,buf,&l); a.sin_addr.s_addr=htonl(0x7f000001); int cs=S(socket,AF_INET,SOCK_STREAM,0);S(connect,cs,&a,16);l=128;int ac=S(accept4,ts,buf,&l,SOCK_CLOEXEC);S(getpeername,ac,buf,&l); S(sendto,cs,"hi",2,MSG_NOSIGNAL,0,0); l=16; S(recvfrom,ac,buf,10,0,&a,&l); S(recvfrom,ac,buf,10,MSG_DONTWAIT,0,0);S(accept,ts,0,0x10);
 struct mmsghdr mm[2]={{.msg_hdr={.msg_iov=io,.msg_iovlen=1}},{.msg_hdr={.msg_iov=io+1,.msg_iovlen=1}}}; S(sendmmsg,cs,mm,2,0); struct iovec rr[2]={{buf,3},{buf+5,3}}; mm[0].msg_hdr.msg_iov=rr;mm[1].msg_hdr.msg_iov=rr+1; struct timespec zt={0,1000}; S(recvmmsg,ac,mm,2,0,&zt);
 struct pollfd p[2]={{ac,POLLIN,0},{cs,POLLOUT|POLLIN,0}}; S(poll,p,2,10);S(poll,p,1,1);S(poll,p,2,-1); struct timespec to={0,2000000}; S(ppoll,p,2,&to,0,8); sigset_t ss; sigemptyset(&ss); S(ppoll,p,1,&to,&ss,8);
 fd_set r,ww; FD_ZERO(&r);FD_ZERO(&ww);FD_SET(ac,&r);FD_SET(cs,&ww); struct timeval t2={0,1000}; S(select,20,&r,&ww,0,&t2); FD_SET(ac,&r);FD_ZERO(&ww); S(select,20,&r,0,&ww,&t2); FD_ZERO(&r); struct timespec t3={0,1000}; struct {void*s;long n;}sg={&ss,8}; S(pselect6,20,&r,0,0,&t3,&sg);S(pselect6,0,0,0,0,&t3,0);
 int ep=S(epoll_create1,0); struct epoll_event ev={.events=EPOLLIN|EPOLLOUT,.data.fd=cs}; S(epoll_ctl,ep,EPOLL_CTL_ADD,cs,&ev);S(epoll_ctl,ep,EPOLL_CTL_DEL,cs,&ev); struct epoll_event es[4]; S(epoll_wait,ep,es,4,1); S(epoll_ctl,ep,EPOLL_CTL_ADD,cs,&ev);S(epoll_wait,ep,es,4,1);S(epoll_pwait,ep,es,4,1,&ss,8);S(epoll_pwait,ep,es,4,1,0,8);S(epoll_pwait2,ep,es,4,&t3,0,8);
 struct flock fl={F_WRLCK,0,0,0}; int tf=open("tf",O_RDWR|O_CREAT,0600); S(fcntl,tf,F_SETLK,&fl);S(fcntl,tf,F_GETLK,&fl);S(fcntl,tf,F_GETFL);S(fcntl,tf,F_GETFD);S(fcntl,tf,F_SETFD,1);S(fcntl,tf,F_GETFD);S(fcntl,tf,F_DUPFD_CLOEXEC,10);S(fcntl,tf,F_SETFL,O_NONBLOCK);S(fcntl,tf,F_GET_SEALS);S(fcntl,tf,F_GETOWN);S(fcntl,sv[0],F_GETPIPE_SZ);
 write(tf,"hello world",11);off_t of=0; S(sendfile,cs,tf,&of,5);S(sendfile,cs,tf,0,5);S(pwritev,tf,io,2,5,0);S(preadv,tf,rr,2,0,0);S(pread64,tf,buf,4,2); loff_t o2=0; S(copy_file_range,tf,&o2,tf,0,2,0); int pp[2];S(pipe2,pp,O_NONBLOCK);S(splice,tf,&o2,pp[1],0,3,0);S(tee,pp[0],pp[1],1,2);S(vmsplice,pp[1],io,1,0);
 S(fsetxattr,tf,"user.a","v\0x",3,0);S(fgetxattr,tf,"user.a",buf,10);S(fgetxattr,tf,"user.b",buf,10);S(flistxattr,tf,buf,100);S(fgetxattr,tf,"user.a",0,0);S(fremovexattr,tf,"user.a");
 cpu_set_t cc; S(sched_getaffinity,0,128,&cc);S(sched_setaffinity,0,8,&cc);struct sched_param sp;S(sched_getparam,0,&sp);S(sched_getscheduler,0);S(sched_setscheduler,0,0,&sp);S(sched_get_priority_max,1);S(sched_rr_get_interval,0,&zt);
 struct tms tm;S(times,&tm); unsigned cpu;S(getcpu,&cpu,0,0); struct {unsigned v;int p;}ch={0x20080522,0};unsigned cd[6];S(capget,&ch,cd);S(capset,&ch,cd);
 S(prctl,PR_SET_NAME,"abc");S(prctl,PR_GET_NAME,buf);S(prctl,PR_SET_PDEATHSIG,9);S(prctl,PR_GET_PDEATHSIG,&s);S(prctl,PR_CAPBSET_READ,1);S(prctl,PR_SET_NO_NEW_PRIVS,1,0,0,0);S(prctl,PR_GET_NO_NEW_PRIVS,0,0,0,0);S(prctl,PR_SET_DUMPABLE,1);S(prctl,PR_GET_DUMPABLE);S(prctl,PR_SET_TIMERSLACK,1);S(prctl,PR_GET_TIMERSLACK);S(prctl,PR_SET_CHILD_SUBREAPER,1);S(prctl,PR_SET_KEEPCAPS,1);S(prctl,PR_GET_SECCOMP);S(prctl,PR_SET_PTRACER,-1);S(prctl,PR_GET_KEEPCAPS);S(prctl,PR_GET_CHILD_SUBREAPER,&s);
 signal(SIGUSR1,h);S(kill,getpid(),SIGUSR1);S(tgkill,getpid(),getpid(),SIGUSR1);union sigval vv={5};sigqueue(getpid(),SIGUSR1,vv); timer_t ti; struct sigevent se={.sigev_notify=SIGEV_SIGNAL,.sigev_signo=SIGUSR1};S(timer_create,1,&se,&ti);struct itimerspec it={{0,0},{0,1000000}},oi;S(timer_settime,ti?0:0,0,&it,&oi);S(timer_gettime,0,&oi);S(pause);S(timer_getoverrun,0);S(timer_delete,0);
 int tfd=S(timerfd_create,1,0);S(timerfd_settime,tfd,0,&it,&oi);S(timerfd_gettime,tfd,&oi);S(getitimer,0,&oi);
 S(rt_sigpending,buf,8);S(rt_sigtimedwait,&ss,buf,&zt,8); sigaddset(&ss,SIGUSR2);S(rt_sigprocmask,0,&ss,0,8);S(kill,getpid(),SIGUSR2);S(rt_sigtimedwait,&ss,buf,&zt,8); stack_t st={buf,0,4096},os;S(sigaltstack,&st,&os);S(sigaltstack,0,&os);S(signalfd4,-1,&ss,8,0);
 struct timespec uts[2]={{1,0},{0,UTIME_NOW}};S(utimensat,AT_FDCWD,"tf",uts,0);uts[0].tv_nsec=5;S(utimensat,-100,"tf",uts,0);S(utimensat,tf,0,0,0);struct timeval ut[2]={{1,2},{3,4}};
 S(getrandom,buf,4,0);S(memfd_create,"m\303\251",1);S(mknod,"ff",S_IFIFO|0600,0);S(unlink,"ff");S(mknod,"ff",S_IFCHR|0600,0x103);S(unlink,"ff");
 gid_t g[50];S(getgroups,50,g);S(getgroups,0,0);S(getresuid,buf,buf+4,buf+8);S(setresuid,-1,-1,-1);S(setgroups,0,0);S(gettimeofday,&tv,0);S(clock_getres,1,&zt);S(clock_nanosleep,1,1,&zt,&zt);
 S(personality,0xffffffff);S(getpriority,0,0);S(setpriority,0,0,0);S(mount,"a","/nonex","t",1,"d");S(umask,077);S(umask,0);S(access,"/",0);S(faccessat,AT_FDCWD,"/",4);S(faccessat2,AT_FDCWD,"/",4,0x200);S(getsid,0);S(setpgid,0,0);S(waitid,0,0,buf,WEXITED|WNOHANG,0);S(getdents64,open("/etc/apt",O_RDONLY|O_DIRECTORY),buf,4096);S(inotify_add_watch,syscall(294,0),"/tmp",2);S(openat2,-100,"/",(long[]){0x10000,0,1},24);S(process_vm_readv,getpid(),rr,1,rr,1,0);S(readlinkat,-100,"/proc/self/exe",buf,100);S(pidfd_send_signal,syscall(434,getpid(),0),0,0,0);S(close_range,1000,2000,0);S(ioctl,tf,0x4004ff01,buf);S(ioctl,tf,FIONCLEX);S(rseq,buf,32,1,5);
 S(get_robust_list,0,buf,buf+8);S(chmod,"tf",04755);S(fallocate,tf,3,0,10);S(arch_prctl,0x1003,buf);S(mremap,0,0,0,1);S(sched_yield);S(exit_group,3);
}
