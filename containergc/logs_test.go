package containergc_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
)

// TestLogs_PodThatReturnsKeepsItsLogs checks a static pod that is defined again with the same
// UID.
func TestLogs_PodThatReturnsKeepsItsLogs(t *testing.T) {
	root := logs(t, "ns_web_web/app/0.log")
	b := newBed(t, func(c *containergc.Config) { c.PodLogs = root })
	b.create("web", "app", 0)
	require.NoError(t, b.KillSandbox(b.boxes["web"]))
	b.set("web", "gone")
	b.cfg.Observer.Planned = func(p containergc.Plan) {
		require.Len(t, p.Removals(), 3)
		b.set("web", "here") // the pod is defined again during the pass
	}
	_, err := b.manager().Collect(t.Context())
	require.NoError(t, err)
	require.Len(t, files(t, root), 1)
	require.Equal(t, []string{"web#0", "web/app#0"}, b.left(), "a created container, which may be started soon, must be kept")
}

func TestLogs_AreRemovedWithTheirContainer(t *testing.T) {
	root := logs(t,
		"ns_web_web/app/0.log", "ns_web_web/app/0.log.20260102-030405", "ns_web_web/app/0.log.20260102-030405.gz",
		"ns_web_web/app/0.log.20260102-030405.tmp", "ns_web_web/app/1.log", "ns_web_web/app/1.log.20260102-030405.gz",
		"ns_web_web/app/notes", "ns_web_web/app/00.log", "ns_web_web/0.log", "notes",
	)
	b := newBed(t, func(c *containergc.Config) { c.PodLogs = root })
	b.dead("web", "app", 0)
	b.dead("web", "app", 1)
	m := b.manager()
	res, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.Len(t, res.Removed, 2)
	require.Equal(t, []string{
		"notes", "ns_web_web/0.log", "ns_web_web/app/00.log", "ns_web_web/app/1.log",
		"ns_web_web/app/1.log.20260102-030405.gz", "ns_web_web/app/notes",
	}, files(t, root))
	require.NoError(t, b.KillSandbox(b.boxes["web"]))
	b.set("web", "gone")
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"notes"}, files(t, root))
}

// Users need the log to find out why a container cannot be removed.
func TestLogs_FailedRemovalOfAContainerKeepsItsLogs(t *testing.T) {
	root := logs(t, "ns_web_web/app/0.log", "ns_web_web/app/0.log.20260102-030405", "ns_web_web/app/1.log", "ns_web_web/app/2.log")
	b := newBed(t, func(c *containergc.Config) { c.PodLogs = root })
	stuck := b.dead("web", "app", 0)
	b.dead("web", "app", 1)
	b.dead("web", "app", 2)
	require.NoError(t, b.Fail("RemoveContainer", fakecri.Fault{Object: stuck, Err: errors.New("busy")}))
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.ErrorContains(t, err, "busy")
	require.Equal(t, []string{"web#0", "web/app#0", "web/app#2"}, b.left())
	require.Equal(t, []string{"ns_web_web/app/0.log", "ns_web_web/app/0.log.20260102-030405", "ns_web_web/app/2.log"}, files(t, root))
	b.ClearFaults("")
	b.clock.Step(hour)
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"ns_web_web/app/2.log"}, files(t, root))
}

// TestLogs_LinksAreNeverFollowed checks links that a pod has created in its log directory.
func TestLogs_LinksAreNeverFollowed(t *testing.T) {
	precious := logs(t, "data", "0.log")
	root := logs(t, "ns_web_web/app/0.log")
	require.NoError(t, os.Symlink(precious, filepath.Join(root, "ns_web_web", "other")))
	require.NoError(t, os.Symlink(precious, filepath.Join(root, "ns_old_old")))
	require.NoError(t, os.Symlink(filepath.Join(precious, "data"), filepath.Join(root, "ns_web_web", "app", "1.log")))
	b := newBed(t, func(c *containergc.Config) { c.PodLogs = root })
	b.set("old", "gone")
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.NoError(t, err)
	b.set("web", "gone")
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Empty(t, files(t, root))
	require.Equal(t, []string{"0.log", "data"}, files(t, precious))
}

func TestLogs_DeadLinksAreRemoved(t *testing.T) {
	root, links := logs(t, "ns_web_web/app/0.log"), t.TempDir()
	b := newBed(t, func(c *containergc.Config) { c.PodLogs, c.ContainerLogs = root, links })
	running := b.start("web", "app", 0)
	link := func(name, target string) { require.NoError(t, os.Symlink(target, filepath.Join(links, name))) }
	link("web_ns_app-alive.log", filepath.Join(root, "ns_web_web/app/0.log"))
	link("web_ns_app-gone.log", filepath.Join(root, "ns_web_web/app/7.log"))
	link("web_ns_app-"+running+".log", filepath.Join(root, "ns_web_web/app/9.log"))
	link("notes", "nowhere")
	require.NoError(t, os.WriteFile(filepath.Join(links, "file-1.log"), nil, 0o600))
	m := b.manager()
	res, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.Len(t, res.Removed, 1)
	require.Equal(t, "log link web_ns_app-gone.log", res.Removed[0].String())
	require.Len(t, files(t, links), 4)
	link("web_ns_app-back.log", filepath.Join(root, "ns_web_web/app/8.log"))
	b.cfg.Observer.Planned = func(containergc.Plan) {
		require.NoError(t, os.WriteFile(filepath.Join(root, "ns_web_web/app/8.log"), nil, 0o600))
	}
	_, err = b.manager().Collect(t.Context())
	require.NoError(t, err)
	require.Contains(t, files(t, links), "web_ns_app-back.log", "a link whose target exists again must be kept")
}

func TestLogs_FoldersThatCannotBeRead(t *testing.T) {
	file := filepath.Join(logs(t, "file"), "file")
	b := newBed(t, func(c *containergc.Config) { c.PodLogs, c.ContainerLogs = file, file })
	b.dead("web", "app", 0)
	b.set("web", "gone")
	_, err := b.manager().Collect(t.Context())
	require.ErrorContains(t, err, "read pod logs")
	require.ErrorContains(t, err, "read container logs")
	require.Equal(t, []string{"web#0"}, b.left(), "containers must be removed nevertheless")
	b.cfg.PodLogs, b.cfg.ContainerLogs = "/nonexistent/pods", "/nonexistent/containers"
	_, err = b.manager().Collect(t.Context())
	require.NoError(t, err)
}

func TestLogs_OfTerminatedPodsAreRemovedUnderDiskPressure(t *testing.T) {
	root, links := logs(t, "ns_job_job/app/0.log", "ns_job_job/app/1.log", "ns_job_job/app/1.log.20260102-030405.gz"), t.TempDir()
	b := newBed(t, func(c *containergc.Config) { c.PodLogs, c.ContainerLogs = root, links })
	b.dead("job", "app", 0)
	id := b.dead("job", "app", 1)
	require.NoError(t, b.StopPodSandbox(t.Context(), b.boxes["job"]))
	b.set("job", "ended")
	require.NoError(t, os.Symlink(filepath.Join(root, "ns_job_job/app/1.log"), filepath.Join(links, "job_ns_app-"+id+".log")))
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.Len(t, files(t, root), 2, "the logs of the newest container must be kept")
	require.Len(t, files(t, links), 1)
	require.NoError(t, m.DeleteAllUnusedContainers(t.Context()))
	require.Empty(t, b.left())
	require.Empty(t, files(t, root))
	require.Empty(t, files(t, links), "dead links must be removed in the same pass")
}

// The name of a link is truncated to 255 characters.
func TestLogs_TruncatedLinkOfARunningContainerStaysDuringRotation(t *testing.T) {
	root, links := t.TempDir(), t.TempDir()
	b := newBed(t, func(c *containergc.Config) { c.PodLogs, c.ContainerLogs = root, links })
	id := b.start("web", "app", 0)
	link := func(name string) {
		require.NoError(t, os.Symlink(filepath.Join(root, "ns_web_web/app/0.log"), filepath.Join(links, name)))
	}
	link("web_ns_app-" + id[:6] + ".log")
	link("web_ns_app-" + id[:5] + ".log") // too short to identify the container
	link("odd.log")
	link("odd-.log")
	link("odd-note.txt")
	_, err := b.manager().Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"odd-note.txt", "web_ns_app-" + id[:6] + ".log"}, files(t, links))
}

// If such a link were followed, a pod that can write to its log directory could make the pass
// read any file through /proc/PID/root, for example in a file system that never responds.
func TestCollect_LinkOfAPodInThePathOfALogIsNotFollowedOut(t *testing.T) {
	root, links, outside := t.TempDir(), t.TempDir(), t.TempDir()
	b := newBed(t, func(c *containergc.Config) { c.PodLogs, c.ContainerLogs = root, links })
	id := b.dead("web", "app", 0)
	require.NoError(t, os.Mkdir(filepath.Join(root, "ns_web_web"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "ns_web_web/app")))
	require.NoError(t, os.Symlink(filepath.Join(root, "ns_web_web/app/0.log"), filepath.Join(links, "web_ns_app-"+id+".log")))
	_, err := b.manager().Collect(t.Context())
	require.NoError(t, err)
	require.Len(t, files(t, links), 1, "files outside must have no effect")
}

func TestLogs_DeadLinkOfAContainerThatCannotBeStoppedStays(t *testing.T) {
	root, links := t.TempDir(), t.TempDir()
	b := newBed(t, func(c *containergc.Config) { c.PodLogs, c.ContainerLogs = root, links })
	id := b.start("web", "app", 0)
	require.NoError(t, b.SetUnknown("ns/web/app"))
	b.set("web", "gone")
	require.NoError(t, os.Symlink(filepath.Join(root, "ns_web_web/app/0.log"), filepath.Join(links, "web_ns_app-"+id+".log")))
	require.NoError(t, b.Fail("StopContainer", fakecri.Fault{Err: errors.New("shim is stuck"), Times: 1}))
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.Error(t, err)
	require.Len(t, files(t, links), 1, "the link of a container that may write again must be kept")
	b.clock.Step(hour)
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Empty(t, files(t, links))
}
