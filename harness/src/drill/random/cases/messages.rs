//! Messages that nobody receives.

use super::{base, program, work};
use crate::drill::random::fault::Fault;
use crate::drill::random::scenario::{Launcher, Scenario, Way};
use crate::drill::script::{MessageSpec, Step};

pub(super) fn recv_left_out() -> Scenario {
    let program = program(3, |rank| {
        let own = rank as usize;
        let send = MessageSpec {
            is_sent: true,
            peer: (own + 1) % 3,
            count: 8,
        };
        let receive = MessageSpec {
            is_sent: false,
            peer: (own + 2) % 3,
            count: 8,
        };
        let messages = if rank == 1 {
            vec![send]
        } else {
            vec![send, receive]
        };
        let batch = Step::Batch {
            group: "world".to_owned(),
            messages,
        };
        vec![work(), Step::Mark, batch, work()]
    });
    let mut scenario = base(Launcher::Run, Way::Shm, program).planting(Fault::RecvLeftOut, 1, None);
    scenario.planted[0].group = vec![0, 1];
    scenario
}

pub(super) fn link_never_taken() -> Scenario {
    let program = program(3, |rank| {
        if rank == 2 {
            vec![Step::Mark, Step::Pause { ms: 200 }]
        } else {
            vec![work()]
        }
    });
    base(Launcher::Env, Way::Tcp, program).planting(Fault::Skips, 2, None)
}

pub(super) fn sent_to_an_ended_group() -> Scenario {
    let program = program(2, |rank| {
        let make = Step::Make {
            name: "a".to_owned(),
            members: vec![0, 1],
        };
        let batch = Step::Batch {
            group: "a".to_owned(),
            messages: vec![MessageSpec {
                is_sent: true,
                peer: 1,
                count: 8,
            }],
        };
        let destroy = Step::Destroy {
            group: "a".to_owned(),
        };
        let pause = |ms| Step::Pause { ms };
        if rank == 0 {
            vec![make, work(), pause(100), batch]
        } else {
            vec![make, destroy, work(), pause(300)]
        }
    });
    let mut scenario = base(Launcher::Env, Way::Shm, program).planting(Fault::RecvLeftOut, 1, None);
    scenario.planted[0].group = vec![0, 1];
    scenario
}
