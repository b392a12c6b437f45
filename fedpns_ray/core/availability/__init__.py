"""When nodes can be drawn: always, or by one of several models, one per file."""

from fedpns_ray.core.availability.always import Always
from fedpns_ray.core.availability.diurnal import Diurnal
from fedpns_ray.core.availability.interfaces import NEVER, Availability, Timetable
from fedpns_ray.core.availability.markov import Markov
from fedpns_ray.core.availability.trace import Trace

__all__ = ["NEVER", "Always", "Availability", "Diurnal", "Markov", "Timetable", "Trace"]
