"""SSR Local."""
