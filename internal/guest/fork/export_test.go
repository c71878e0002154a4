//go:build linux

package fork

// ShareMemory decides whether the processes of commands share the memory of their supervisors until execve. By default
// they do not, because tests are dumpable.
func (s *Starter) ShareMemory(share bool) {
	s.cloning = copied
	if share {
		s.cloning = shared
	}
}
