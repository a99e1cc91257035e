package fakecri

import (
	"errors"
	"os"
	"strings"
	"time"
)

// writeLog writes the log lines of a container's program in the CRI log format: time,
// stream, F for a full line, text.
func (n *Node) writeLog(c *container) error {
	var b strings.Builder
	for _, line := range c.program.Log {
		b.WriteString(n.wall().UTC().Format(time.RFC3339Nano) + " stdout F " + line + "\n")
	}
	return n.appendLog(c, []byte(b.String()))
}

// appendLog appends text to a container's log file, and creates the file if it does not
// exist. It does nothing if the container has no log path or Config.WriteLogs is not set.
func (n *Node) appendLog(c *container, text []byte) error {
	if !n.cfg.WriteLogs || c.logPath == "" {
		return nil
	}
	f, err := os.OpenFile(c.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
