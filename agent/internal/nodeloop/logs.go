package nodeloop

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
)

// newLogRotation creates the manager that limits the log size of running containers. If
// Config.PodLogs is empty, it creates no manager.
func (l *Loop) newLogRotation() (err error) {
	if l.cfg.PodLogs == "" {
		return nil
	}
	observer := l.cfg.Observers.Logs
	observer.Checked = chain2(func(_ logrotate.Result, err error) { l.parts.record(partLogs, err) }, observer.Checked)
	l.logs, err = logrotate.New(logrotate.Config{
		Runtime:  l.cfg.Runtime,
		Running:  l.runningLogs,
		PodLogs:  l.cfg.PodLogs,
		Policy:   l.cfg.Logs,
		Clock:    l.cfg.Clock,
		Logger:   l.cfg.Logger,
		Observer: observer,
	})
	return err
}

// runningLogs returns the logs of running containers that the pod loop has observed.
func (l *Loop) runningLogs(context.Context) (logs []logrotate.Log, _ error) {
	for _, pod := range l.cfg.Pods.Observed() {
		for _, c := range pod.Containers {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetLogPath() != "" {
				logs = append(logs, logrotate.Log{ContainerID: c.GetId(), Path: c.GetLogPath()})
			}
		}
	}
	return logs, nil
}
