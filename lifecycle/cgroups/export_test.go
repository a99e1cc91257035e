package cgroups

// SetRmdir replaces the removal of a cgroup's directory. Tests need this,
// because an ordinary directory can't be removed while it contains files.
func (c *Cgroupfs) SetRmdir(f func(string) error) { c.rmdir = f }
