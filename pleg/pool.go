package pleg

import (
	"context"
	"sync"
	"time"
)

// job is the inspection of one pod. It belongs to its worker until it is done.
type job struct {
	pass    *pass
	record  *record
	objects []object // as listed
	at      time.Time
	queued  time.Time
	with    inspector
	// again marks a pod that failed before, podSync one whose inspection is news
	// even if no container's state has changed.
	again, podSync bool

	found snapshot
	err   error
}

// pass is what the jobs of one call have in common.
type pass struct {
	ctx context.Context // of that call: its end cuts its jobs short
	// left and errs belong to the generator's step lock. A send on idle, of
	// capacity 1, says that left has become 0.
	left int
	errs []error
	idle chan struct{}
}

func newPass(ctx context.Context) *pass { return &pass{ctx: ctx, idle: make(chan struct{}, 1)} }

// pool runs a bounded number of jobs at a time.
type pool struct {
	max     int
	timeout time.Duration
	done    func() // called after each job

	mu sync.Mutex
	// Pods that failed before wait in a queue of their own and get half of the
	// places at most: any number of hanging pods leaves the others theirs.
	first, again          []*job
	running, runningAgain int
	finished              []*job
}

func (p *pool) submit(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j.again {
		p.again = append(p.again, j)
	} else {
		p.first = append(p.first, j)
	}
	p.start()
}

// collect takes the jobs that are done.
func (p *pool) collect() []*job {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.finished
	p.finished = nil
	return done
}

// start gives free places to jobs. It needs mu.
func (p *pool) start() {
	for p.running < p.max {
		var j *job
		switch {
		case len(p.first) > 0:
			j = pop(&p.first)
		case len(p.again) > 0 && p.runningAgain < max(1, p.max/2):
			j = pop(&p.again)
			p.runningAgain++
		default:
			return
		}
		p.running++
		go p.run(j.pass.ctx, j)
	}
}

// pop takes the first job out of a queue that is not empty.
func pop(queue *[]*job) *job {
	j := (*queue)[0]
	(*queue)[0] = nil // for the collector
	*queue = (*queue)[1:]
	return j
}

func (p *pool) run(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if j.err = ctx.Err(); j.err == nil {
		j.found, j.err = j.with.inspect(ctx, j.record.uid, j.objects)
	}
	p.mu.Lock()
	p.running--
	if j.again {
		p.runningAgain--
	}
	p.finished = append(p.finished, j)
	p.start()
	p.mu.Unlock()
	p.done()
}
